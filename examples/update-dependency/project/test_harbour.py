import unittest

from harbour import board


class Board(unittest.TestCase):
    def test_the_next_high_water_is_shown(self):
        self.assertEqual(board(["18:40", "06:15"], "07:00"), "high water at 18:40")

    def test_after_the_last_one_there_is_none(self):
        self.assertEqual(board(["06:15"], "07:00"), "no high water today")


if __name__ == "__main__":
    unittest.main()
