"""Commands with a waiting window, and the managed tasks that they become (exec-and-tasks.md section 4)."""
