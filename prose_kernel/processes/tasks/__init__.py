"""Commands with a limited wait, and the managed tasks that they become (exec-and-tasks.md section 4)."""
