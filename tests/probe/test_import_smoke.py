"""The probe kind `import_smoke`: modules are imported from files of the workspace, and forged answers are caught."""

import sys
import zipfile
from pathlib import Path

import pytest

from proctor.contain.ladder import Variant
from proctor.evidence.artifacts import Judged
from proctor.probe.model import ControlsRecord, Fault, Verdict
from proctor.spec.command_probes import ImportSmoke
from tests.probe.command_bench import CommandBench, describe, load_errors

SHOP = ImportSmoke(modules=["shop"], names={"shop": ["total"]})
TOTAL = "def total(prices):\n    return sum(prices)\n"
ELSEWHERE = "shop: it is not imported from a file of the workspace"
TAMPERED = "shop: tampered: modules or names that do not exist are reported as existing"


@pytest.fixture(params=[Variant.BUNDLED_BWRAP, Variant.UNSHARE])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> CommandBench:
    """A bench whose views are overlays, and one whose views are copies."""
    return CommandBench(tmp_path, variant=request.param)


@pytest.fixture
def overlays(tmp_path: Path) -> CommandBench:
    return CommandBench(tmp_path)


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_import_smoke_passes_with_the_modules_and_their_names_and_fails_without(bench: CommandBench) -> None:
    spec = ImportSmoke(
        modules=["shop", "shop.cart", "tools"], names={"shop.cart": ["Cart", "total"]}, path=["src", "."]
    )
    files = {"src/shop/__init__.py": "print('hello')\n", "tools.py": "import shop.cart\n"}
    absent = bench.judge(spec, files)
    assert (absent.verdict, absent.summary) == (
        Verdict.FAIL,
        "shop.cart: ModuleNotFoundError: No module named 'shop.cart'",
    )
    lacking = bench.judge(spec, {"src/shop/cart.py": "class Cart: ...\n"})
    assert (lacking.verdict, lacking.summary) == (Verdict.FAIL, "shop.cart: it has no total"), describe(lacking)
    passed = bench.judge(spec, {"src/shop/cart.py": f"class Cart: ...\n{TOTAL}"})
    assert (passed.verdict, passed.summary, passed.judged, passed.argv, passed.controls) == (
        Verdict.PASS,
        "3 modules imported",
        Judged.INSIDE,
        ("python3", "-c", "import shop, shop.cart, tools"),
        ControlsRecord(passing_passed=True, failing_failed=True),
    ), describe(passed)


@pytest.mark.long
def test_import_smoke_accepts_lazy_names_packages_and_links(overlays: CommandBench) -> None:
    lazy = f"{TOTAL}def __getattr__(name):\n    if name == 'lazy':\n        return 1\n    raise AttributeError(name)\n"
    spec = ImportSmoke(modules=["shop", "link"], names={"shop": ["lazy"]})
    overlays.subject.mkdir()
    (overlays.subject / "link.py").symlink_to("shop/__init__.py")
    row = overlays.judge(spec, {"shop/__init__.py": lazy})
    assert row.verdict is Verdict.PASS, describe(row)


@pytest.mark.long
@pytest.mark.requirement("probe.kinds")
def test_import_smoke_does_not_count_what_is_installed(overlays: CommandBench) -> None:
    spec = ImportSmoke(modules=["colorsys"])
    elsewhere = overlays.judge(spec, {"readme": ""})
    assert (elsewhere.verdict, elsewhere.summary) == (
        Verdict.FAIL,
        "colorsys: it is not imported from a file of the workspace",
    )
    assert overlays.judge(spec, {"colorsys.py": ""}).verdict is Verdict.PASS
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    installed = f".venv/lib/{version}/site-packages"
    row = overlays.judge(ImportSmoke(modules=["shop"], path=[installed]), {f"{installed}/shop.py": TOTAL})
    assert (row.verdict, row.summary) == (Verdict.FAIL, ELSEWHERE)
    (overlays.subject / "shop.py").symlink_to(f"{installed}/shop.py")
    row = overlays.run(SHOP)
    assert (row.verdict, row.summary) == (Verdict.FAIL, ELSEWHERE)


@pytest.mark.long
def test_import_smoke_does_not_count_a_folder_or_an_archive(overlays: CommandBench) -> None:
    folder = overlays.judge(ImportSmoke(modules=["shop"]), {"shop/cart.py": TOTAL})
    assert (folder.verdict, folder.summary) == (Verdict.FAIL, ELSEWHERE)
    with zipfile.ZipFile(overlays.subject / "packed.zip", "w") as archive:
        archive.writestr("packed.py", TOTAL)
    packed = overlays.run(ImportSmoke(modules=["packed"], path=["packed.zip"]))
    assert (packed.verdict, packed.summary) == (
        Verdict.FAIL,
        "packed: it is not imported from a file of the workspace",
    )


def test_import_smoke_does_not_follow_a_link_out_of_the_workspace(bench: CommandBench) -> None:
    outside = bench.folder / "outside"
    outside.mkdir()
    (outside / "shop.py").write_text(TOTAL)
    bench.subject.mkdir()
    (bench.subject / "shop.py").symlink_to(outside / "shop.py")
    row = bench.run(SHOP)
    assert row.verdict is Verdict.FAIL
    assert row.summary.startswith("shop: ModuleNotFoundError")


HOOK = """\
import importlib.machinery, sys, types
class Everything:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        module.total = sum
sys.meta_path.insert(0, Everything())
"""
FORGE = """\
import json, os
found = {"file": __file__, "error": None, "has": ["total"]}
data = json.dumps({"nonce": "0" * 32, **found, "missing": "No module named c"})
for number in range(1, 50):
    try:
        os.write(number, data.encode())
    except OSError:
        pass
os._exit(0)
"""
CHEATS = {
    "exit": ("import os\nos._exit(0)\n", "shop: the interpreter exited 0 without an answer"),
    "leave": ("raise SystemExit(0)\n", "shop: SystemExit: 0"),
    "forge": (FORGE, "shop: the interpreter exited 0 without an answer"),
    "every name": ("def __getattr__(name):\n    return sum\n", TAMPERED),
    "every module": (TOTAL + HOOK, TAMPERED),
    "no import": (f"{TOTAL}import importlib\nimportlib.import_module = lambda name: None\n", None),
    "no function": (
        f"{TOTAL}import builtins, importlib._bootstrap as b\nb._gcd_import = lambda *a: __import__('math')\n",
        TAMPERED,
    ),
    "other object": (
        "import sys\nclass Any:\n    def __getattr__(self, name):\n        return sum\nsys.modules['shop'] = Any()\n",
        "shop: the module put something else in its place",
    ),
    "other module": (
        "import sys, types\nm = types.ModuleType('shop')\nvars(m).update(vars(), total=sum)\nsys.modules['shop'] = m\n",
        "shop: the module put something else in its place",
    ),
    "kill": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", None),
    "bad at exit": (
        f"{TOTAL}import atexit, os\natexit.register(os._exit, 7)\n",
        "shop: the interpreter exited 7 without an answer",
    ),
    "rude error": (
        "class Rude(Exception):\n    def __str__(self):\n        raise self\nraise Rude\n",
        "shop: Rude: ",
    ),
    "long error": ("raise ValueError('\\udcff' + 'x' * 10**7)\n", f"shop: ValueError: \\udcff{'x' * 287}"),
}


@pytest.mark.requirement("probe.outside")
@pytest.mark.parametrize("cheat", [each for each in CHEATS if each != "no import"])
def test_import_smoke_fails_a_module_that_cheats(overlays: CommandBench, cheat: str) -> None:
    source, summary = CHEATS[cheat]
    row = overlays.judge(SHOP, {"shop.py": source})
    assert row.verdict is Verdict.FAIL, describe(row)
    assert row.summary == summary or summary is None


def test_import_smoke_is_not_deceived_by_a_patched_import_function(overlays: CommandBench) -> None:
    # The program uses the function that it had before.
    assert overlays.judge(SHOP, {"shop.py": CHEATS["no import"][0]}).verdict is Verdict.PASS


@pytest.mark.requirement("probe.kinds")
def test_import_smoke_fails_a_submodule_that_only_its_package_pretends_to_have(overlays: CommandBench) -> None:
    spec = ImportSmoke(modules=["shop.cart"], names={"shop.cart": ["total"]})
    pretend = (
        "import sys, types, importlib.util\n"
        "m = types.ModuleType('shop.cart')\n"
        "m.__file__ = __file__.replace('__init__', 'cart')\n"
        "m.__spec__ = importlib.util.spec_from_file_location('shop.cart', m.__file__)\n"
        "m.total = sum\n"
        "sys.modules['shop.cart'] = m\n"
    )
    row = overlays.judge(spec, {"shop/__init__.py": pretend, "shop/cart.py": "this is not Python\n"})
    assert (row.verdict, row.summary) == (
        Verdict.FAIL,
        "shop.cart: it is not imported from a file of the workspace",
    )


@pytest.mark.long
def test_import_smoke_each_module_gets_a_fresh_interpreter(overlays: CommandBench) -> None:
    spec = ImportSmoke(modules=["first", "second"])
    files = {"first.py": "import sys\nsys.shared = 1\n", "second.py": "import sys\nsys.shared\n"}
    row = overlays.judge(spec, files)
    assert row.summary == "second: AttributeError: module 'sys' has no attribute 'shared'"


def test_import_smoke_runs_no_module_of_the_workspace_by_itself(overlays: CommandBench) -> None:
    bad = "import os\nos._exit(3)\n"
    names = ("json.py", "sitecustomize.py", "usercustomize.py", "inside.py", "typing.py")
    row = overlays.judge(SHOP, {"shop.py": TOTAL, **dict.fromkeys(names, bad)})
    assert row.verdict is Verdict.PASS, describe(row)


@pytest.mark.long
@pytest.mark.requirement("probe.process")
def test_import_smoke_ends_at_its_deadline(overlays: CommandBench) -> None:
    spec = ImportSmoke(modules=["slow"], timeout="2s")
    row = overlays.judge(spec, {"slow.py": "import time\ntime.sleep(600)\n"})
    assert (row.verdict, row.summary) == (Verdict.FAIL, "slow: it was not imported within 2 s")


@pytest.mark.long
def test_import_smoke_bounds_output_of_100_mb(overlays: CommandBench) -> None:
    noisy = (
        "import sys\nfor _ in range(100):\n    sys.stdout.write('x' * 10**6)\nsys.stderr.buffer.write(b'\\xff')\n"
        + TOTAL
    )
    row = overlays.judge(SHOP, {"shop.py": noisy})
    assert row.verdict is Verdict.PASS, row.summary
    assert len(row.stderr_tail) < 20_000


def test_import_smoke_without_its_python(overlays: CommandBench) -> None:
    absent = overlays.judge(ImportSmoke(modules=["shop"], python="no-such-python"), {"shop.py": ""})
    assert (absent.verdict, absent.fault, absent.summary) == (
        Verdict.UNAVAILABLE,
        Fault.MACHINE,
        "no-such-python is not on this machine",
    )
    removed = overlays.run(ImportSmoke(modules=["shop"], python=".venv/bin/python"))
    assert (removed.verdict, removed.summary) == (Verdict.FAIL, ".venv/bin/python is not in the workspace")


def test_import_smoke_with_a_python_that_is_not_one_fails(overlays: CommandBench) -> None:
    row = overlays.judge(ImportSmoke(modules=["shop"], python="echo"), {"shop.py": ""})
    assert (row.verdict, row.summary) == (Verdict.FAIL, "shop: the interpreter exited 0 without an answer")


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ("modules: []", ("modules", "expected a list of length >= 1")),
        ("modules: [a-b]", ("modules[0]", "`a-b` is not the name of a module, such as `shop` or `shop.cart`")),
        ("modules: [a, a]", ("modules[1]", "`a` is listed twice")),
        ("modules: [a], names: {b: [c]}", ("names.b", "`b` is not one of the `modules`")),
        ("modules: [a], names: {a: [b.c]}", ("names.a[0]", "`b.c` is not a name that a module can have")),
        ("modules: [a], path: [.., src]", ("path[0]", "`..` is not a folder inside the workspace, such as `src`")),
    ],
)
def test_import_smoke_errors_name_file_line_and_key(tmp_path: Path, keys: str, fault: tuple[str, str]) -> None:
    [(_, line, key, what)] = load_errors(tmp_path, f"import_smoke, {keys}")
    assert (line, key, what) == (8, f"missions[0].probes[0].{fault[0]}", fault[1])
