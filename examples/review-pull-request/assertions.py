"""A review names each place once."""

import re


def once(outputs):
    places = re.findall(r"`([\w./-]+:\d+)`", outputs["review"])
    twice = sorted({place for place in places if places.count(place) > 1})
    return not twice, ", ".join(twice) or f"{len(places)} places"
