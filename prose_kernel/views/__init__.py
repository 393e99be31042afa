"""Text for people, shared by the notebook and the command line."""
