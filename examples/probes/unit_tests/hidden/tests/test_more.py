from shop import total


def test_other_discount():
    assert total([8, 2], discount=50) == 5
