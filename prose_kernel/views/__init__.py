"""Views: text, HTML and pictures for people, shared by the notebook and the command line."""
