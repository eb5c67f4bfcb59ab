def total(prices, discount=0):
    """Return the sum of the prices, less a discount in per cent."""
    return sum(prices)
