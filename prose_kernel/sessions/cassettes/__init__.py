"""Recordings: sessions and judgements are written down once and replayed for ever."""
