"""What a run leaves behind: layout, binding files, the trace, gate records, and the programs it imports."""
