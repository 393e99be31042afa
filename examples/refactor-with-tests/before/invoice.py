"""Totals of invoices. Grown over four years."""


def total(lines, customer):
    t = 0
    for l in lines:
        if l["kind"] == "item":
            if customer["country"] == "DE":
                t = t + l["price"] * l["count"] * 119 // 100
            elif customer["country"] == "FR":
                t = t + l["price"] * l["count"] * 120 // 100
            else:
                t = t + l["price"] * l["count"]
        if l["kind"] == "shipping":
            if customer["country"] == "DE":
                t = t + l["price"] * 119 // 100
            elif customer["country"] == "FR":
                t = t + l["price"] * 120 // 100
            else:
                t = t + l["price"]
        if l["kind"] == "voucher":
            t = t - l["price"]
    if t < 0:
        t = 0
    return t
