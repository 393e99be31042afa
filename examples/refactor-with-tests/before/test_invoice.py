import unittest

from invoice import total

DE, FR, CH = ({"country": code} for code in ("DE", "FR", "CH"))


def item(price, count=1):
    return {"kind": "item", "price": price, "count": count}


class Total(unittest.TestCase):
    def test_tax_depends_on_the_country(self):
        self.assertEqual([total([item(1000)], who) for who in (DE, FR, CH)], [1190, 1200, 1000])

    def test_tax_is_rounded_down_on_each_line(self):
        self.assertEqual(total([item(150), item(150)], DE), 356)

    def test_shipping_is_taxed_and_has_no_count(self):
        self.assertEqual(total([{"kind": "shipping", "price": 490}], FR), 588)

    def test_a_voucher_is_not_taxed(self):
        self.assertEqual(total([item(1000), {"kind": "voucher", "price": 500}], DE), 690)

    def test_nobody_is_owed_money(self):
        self.assertEqual(total([{"kind": "voucher", "price": 500}], CH), 0)


if __name__ == "__main__":
    unittest.main()
