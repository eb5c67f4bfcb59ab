from shop.cart import Cart, total

__all__ = ["Cart", "total"]
