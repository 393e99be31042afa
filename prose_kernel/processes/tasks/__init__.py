"""`exec_command`: commands that become managed tasks when the caller stops waiting (exec-and-tasks.md section 4)."""
