"""The tools of the desk: each public function can be called by a session that names it (lesson 12)."""

_PAYMENTS = {"1042": 2, "1043": 1, "1050": 0}


def payments(order: str) -> str:
    """How often an order was paid.

    Args:
        order: the number of the order, as in the ticket
    """
    if order not in _PAYMENTS:
        return f"there is no order {order}"
    return f"order {order}: {_PAYMENTS[order]} payments"
