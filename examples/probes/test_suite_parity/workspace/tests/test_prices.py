import unittest

import prices

ORDER = [(250, 2), (100, 5)]


class PricesTest(unittest.TestCase):
    def test_net(self) -> None:
        self.assertEqual(prices.net(ORDER), 1000)

    def test_gross(self) -> None:
        self.assertEqual(prices.gross(ORDER, 20), 1200)

    def test_empty_order(self) -> None:
        self.assertEqual((prices.net([]), prices.gross([], 20)), (0, 0))

    def test_half_a_cent_is_rounded_up(self) -> None:
        """Fails until prices are rounded, which is another task."""
        self.assertEqual(prices.gross([(1, 1)], 50), 2)
