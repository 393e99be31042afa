"""The index of the names in a VVM program, for editors: their definitions and uses, and the targets of imports.

Scopes are as in docs/reference/vvm.md 4.2: one for the module, one for each function. The names of a scope are the same
everywhere in it. Agents have a separate table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from msgspec import Struct, field

from prose_kernel.language.nodes import visitors
from prose_kernel.language.source import Source, Span
from prose_kernel.language.symbols import ImportTarget, Indexer, Occurrence, Symbol, SymbolIndex, SymbolKind
from prose_kernel.language.vvm import tree
from prose_kernel.language.vvm.agent_checks import name_span
from prose_kernel.language.vvm.scopes import bound_names
from prose_kernel.language.vvm.tree import Name, Program


class _Scope(Struct, eq=False):
    """The names of the module or of a function; None for a name whose binding was not visited yet."""

    names: dict[str, Symbol | None]
    outer: _Scope | None = None
    parameters: dict[Symbol, dict[str, Symbol]] = field(default_factory=dict)  # of functions

    def holder(self, name: str) -> _Scope | None:
        """Return the innermost scope, from this one outwards, that has a name."""
        scope: _Scope | None = self
        while scope is not None and name not in scope.names:
            scope = scope.outer
        return scope


def index(program: Program, source: Source) -> SymbolIndex:
    """Return the index of a program, as far as its text could be read, in linear time. Never raises."""
    return _Indexer(source).of(program)


class _Indexer(Indexer):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._agents: dict[str, Symbol] = {}
        self._exported: list[tree.Export | tree.ExportPack] = []

    def of(self, program: Program) -> SymbolIndex:
        module = _Scope(dict.fromkeys(bound_names(program.items)))
        for item in program.items:  # agents, functions and imports exist from the beginning
            match item:
                case tree.AgentDeclaration(name=name) | tree.ModuleImport(agent=True, local=name) if name.id:
                    self._agents.setdefault(name.id, Symbol(name.id, "agent", name.span, item.span))
                case tree.Def():
                    self._bind_function(item, module)
        self.walk(program.items, module)
        self.run()
        for item in self._exported:
            self._share(item, module)
        return self.index()

    # ------------------------------------------------------------ names

    def _bind(self, name: Name, scope: _Scope, kind: SymbolKind, extent: Span) -> Symbol | None:
        if not name.id:
            return None
        symbol = scope.names[name.id] = scope.names.get(name.id) or Symbol(name.id, kind, name.span, extent)
        self.bind(symbol, kind, name.span, extent)
        return symbol

    def _symbol(self, name: str, scope: _Scope, span: Span) -> Symbol | None:
        """Return the variable that a name means; one that is bound further down is created here."""
        holder = scope.holder(name)
        if holder is None:
            return None
        symbol = holder.names[name] = holder.names[name] or Symbol(name, "variable", Span(-1, -1), span)
        return symbol

    def _read(self, name: str, span: Span, scope: _Scope) -> Symbol | None:
        symbol = self._symbol(name, scope, span) or self._agents.get(name)
        if symbol is not None:
            self.use(symbol, span)
        return symbol

    # ------------------------------------------------------------ statements of a module

    def visit_module_import(self, node: tree.ModuleImport, scope: _Scope) -> None:
        path, name, local = node.path.value, node.name, node.local
        if path.strip():
            self.links.append((node.path.span, path))
        if not local.id:
            return
        kind = "agent" if node.agent else "value"
        target = ImportTarget(path, f"{kind} {name.id}")
        if node.agent:
            symbol = self._agents.get(local.id)
            if symbol is not None:
                self.use(symbol, local.span, defines=True)
        else:
            symbol = self._bind(local, scope, "variable", node.span)
        if symbol is not None:
            symbol.target = symbol.target or target
        if node.alias is not None:
            self.use(None, name.span, target=target)
        else:
            self.occurrences[-1].target = target

    def visit_agent_declaration(self, node: tree.AgentDeclaration, scope: _Scope) -> None:
        if node.name.id in self._agents:
            self.use(self._agents[node.name.id], node.name.span, defines=True)
        self.walk(node.keywords, scope)

    def visit_export(self, node: tree.Export, scope: _Scope) -> None:
        name = node.name
        if node.agent:
            if name.id in self._agents:
                self.use(self._agents[name.id], name.span)
        else:
            self._read(name.id, name.span, scope)
        self._exported.append(node)

    def visit_export_pack(self, node: tree.ExportPack, scope: _Scope) -> None:
        self.walk((node.arguments, node.keywords), scope)  # to rename a bare argument is to rename the export
        self._exported.append(node)

    def _share(self, item: tree.Export | tree.ExportPack, module: _Scope) -> None:
        """Record the names by which other files know the exported symbols."""
        if isinstance(item, tree.ExportPack):
            for argument in item.arguments:
                if isinstance(argument, Name):
                    self._share_value(argument.id, module)
            for keyword in item.keywords:
                if keyword.name:
                    symbol = self.define(keyword.name, "export", name_span(keyword), item.span)
                    symbol.shared.add(f"value {keyword.name}")
        elif item.agent:
            if item.name.id in self._agents:
                self._agents[item.name.id].shared.add(f"agent {item.name.id}")
        else:
            self._share_value(item.name.id, module)

    def _share_value(self, name: str, module: _Scope) -> None:
        symbol = module.names.get(name)
        if symbol is None:
            return
        symbol.shared.add(f"value {name}")
        for parameter in module.parameters.get(symbol, {}).values():
            parameter.shared.add(f"parameter {name}.{parameter.name}")

    # ------------------------------------------------------------ functions

    def _bind_function(self, node: tree.Def, scope: _Scope) -> None:
        name = node.name
        if name.id and scope.names.get(name.id) is None:
            symbol = scope.names[name.id] = Symbol(name.id, "function", name.span, node.span)
            made = (Symbol(one.id, "parameter", one.span, node.span) for one in node.parameters if one.id)
            scope.parameters[symbol] = {one.name: one for one in made}

    def visit_def(self, node: tree.Def, scope: _Scope) -> None:
        self._bind_function(node, scope)
        symbol = scope.names.get(node.name.id)
        parameters: dict[str, Symbol] = {}
        if symbol is not None:
            self.use(symbol, node.name.span, defines=True)
            if symbol.span == node.name.span:
                parameters = scope.parameters.get(symbol, {})
        inner = _Scope({**dict.fromkeys(bound_names(node.body)), **parameters}, scope)
        for parameter in node.parameters:
            self._bind(parameter, inner, "parameter", node.span)
        for item in node.body:
            if isinstance(item, tree.Def):
                self._bind_function(item, inner)
        self.walk(node.body, inner)

    def visit_call(self, node: tree.Call, scope: _Scope) -> None:
        callee = node.callee
        if not isinstance(callee, Name):
            self.walk(callee, scope)
        elif callee.id == "pack" and scope.holder("pack") is None:
            self._packed(node.arguments, scope)
            self.walk(node.keywords, scope)
            return
        else:
            self._named_arguments(callee, self._read(callee.id, callee.span, scope), node.keywords, scope)
        self.walk((node.arguments, node.keywords), scope)

    def _named_arguments(
        self, callee: Name, symbol: Symbol | None, keywords: Iterable[tree.Keyword], scope: _Scope
    ) -> None:
        """Record the names of arguments as uses of the function's parameters, in this file or in another one."""
        holder = scope.holder(callee.id)
        if symbol is None or holder is None:
            return
        parameters = holder.parameters.get(symbol, {})
        for keyword in keywords:
            if keyword.name in parameters:
                self.use(parameters[keyword.name], name_span(keyword))
            elif symbol.target is not None and symbol.target.name.startswith("value "):
                name = f"parameter {symbol.target.name.removeprefix('value ')}.{keyword.name}"
                self.use(None, name_span(keyword), target=ImportTarget(symbol.target.path, name))

    def _packed(self, arguments: Iterable[tree.Expression], scope: _Scope) -> None:
        """Record the arguments of `pack`. A bare name is also the key; if one gets a key, the next ones need keys."""
        last: Occurrence | None = None
        for argument in arguments:
            if not isinstance(argument, Name | tree.It):
                self.walk(argument, scope)
                continue
            name = argument.id if isinstance(argument, Name) else "it"
            symbol = self._symbol(name, scope, argument.span) or self._agents.get(name)
            if symbol is None:
                symbol = Symbol(name, "variable", argument.span, argument.span, implicit=True)
            occurrence = self.use(symbol, argument.span, before=f"{name}=")
            if last is not None:
                last.following = occurrence
            last = occurrence

    # ------------------------------------------------------------ other statements

    def visit_assign(
        self, node: tree.Assign | tree.For | tree.Choose | tree.Constrain | tree.Handler, scope: _Scope
    ) -> None:
        self._bind(node.target, scope, "variable", node.span)
        self.walk(tuple(part for part in node.fields() if part is not node.target), scope)

    visit_for = visit_choose = visit_constrain = visit_handler = visit_assign

    def visit_error_pattern(self, node: tree.ErrorPattern, scope: _Scope) -> None:
        if node.name is not None:
            self._bind(node.name, scope, "variable", node.span)

    # ------------------------------------------------------------ expressions

    def visit_name(self, node: Name, scope: _Scope) -> None:
        self._read(node.id, node.span, scope)

    def visit_placeholder(self, node: tree.Placeholder, scope: _Scope) -> None:
        if node.path:
            start = self.source.text.find(node.path[0], node.span.start, node.span.end)
            if start >= 0 and (symbol := self._symbol(node.path[0], scope, node.span)) is not None:
                self.use(symbol, Span(start, start + len(node.path[0])))

    def visit_agent_name(self, node: tree.AgentName, scope: _Scope) -> None:
        span = Span(node.span.end - len(node.id), node.span.end)
        symbol = self._agents.get(node.id) or self._symbol(node.id, scope, span)
        if symbol is not None:
            self.use(symbol, span)

    visits: ClassVar = visitors(tree, vars())
