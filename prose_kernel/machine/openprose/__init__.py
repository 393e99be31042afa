"""The machine of OpenProse."""
