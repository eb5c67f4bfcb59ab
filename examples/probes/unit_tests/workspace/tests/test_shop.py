from shop import total


def test_total():
    assert total([10, 20]) == 30


def test_discount():
    assert total([10, 30], discount=25) == 30
