"""`python -m prose_kernel`: start the kernel. The kernelspec calls this; people use `prose`."""

from __future__ import annotations


def main() -> None:
    from prose_kernel.notebook.app import ProseApp

    ProseApp.launch_instance()


if __name__ == "__main__":
    main()
