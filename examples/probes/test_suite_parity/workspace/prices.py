"""Prices of an order, whose items are pairs of a price in cents and a count."""


def net(items: list[tuple[int, int]]) -> int:
    result = 0
    for price, count in items:
        result += price * count
    return result


def gross(items: list[tuple[int, int]], percent: int) -> int:
    result = 0
    for price, count in items:
        result += price * count
    return result + result * percent // 100
