"""The machine of VVM."""
