"""The ways to hold a process tree that the tests force, one after the other."""

from proctor.contain.ladder import Variant, survey

HAS_CGROUP = any(each.variant is Variant.CGROUP and each.is_available for each in survey())
# A bwrap on PATH is the bundled one by another name. A delegated cgroup is more than every machine offers; where there
# is none it cannot be tried, and the ladder's own tests see that it is refused.
WAYS = [
    Variant.BUNDLED_BWRAP,
    Variant.UNSHARE,
    *([Variant.CGROUP] if HAS_CGROUP else []),
    Variant.WARDEN,
]
