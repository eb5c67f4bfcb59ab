import unittest


class ControlTest(unittest.TestCase):
    def test_PROCTOR_TOKEN(self) -> None:
        self.fail("as planned")
