"""Who decides conditions."""
