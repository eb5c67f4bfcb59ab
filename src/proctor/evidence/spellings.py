"""The spellings in which a secret is searched for: escaped, quoted, and encoded."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from proctor.spec.literal import MIN_SECRET_CHARS

_ESCAPED = json.JSONEncoder(ensure_ascii=False).encode
_ESCAPED_ASCII = json.JSONEncoder().encode

_MNEMONICS = dict(zip(b"\a\b\t\n\v\f\r", "abtnvfr", strict=True))


def escape(text: str) -> str:
    """Return the text as it is written between the quotes of a JSON string.

    >>> escape('say "hi"')
    'say \\\\"hi\\\\"'
    """
    return _ESCAPED(text)[1:-1]


def text_forms(value: str) -> Iterator[str]:
    """Yield the spellings in which the case of ASCII letters need not matter. To add one, add a `yield`."""
    # A diff or a stream read by line never contains a secret of several lines in one piece.
    for plain in (value, *(line.strip() for line in value.splitlines())):
        if len(plain) >= MIN_SECRET_CHARS:
            once = (escape(plain), escape(plain).replace("/", "\\/"), _ESCAPED_ASCII(plain)[1:-1])
            yield from (plain, *once, *map(escape, once))
            yield from _quoted_forms(plain)
    data = value.encode("utf-8", "surrogateescape")
    # The characters left unescaped differ: RFC 3986, paths, JavaScript's encodeURIComponent, HTML forms.
    yield from (quote(data, safe=""), quote(data, safe="/"), quote(data, safe="!~*'()"), quote_plus(data))
    yield from _utf16_forms(value)


def case_forms(value: str) -> Iterator[str]:
    """Yield a secret whose letters are not all ASCII, like `ä` and `ß`, in another case."""
    if not value.isascii():
        yield from (value.upper(), value.lower(), value.swapcase())


def forms(value: str) -> Iterator[str]:
    """Yield the spellings of a secret that are found even if they are split over the pieces of a stream."""
    yield from text_forms(value)
    yield from base64_forms(value.encode("utf-8", "surrogateescape"))


def _quoted_forms(plain: str) -> Iterator[str]:
    """Yield a secret as shells, Python, git, ls and cat print it, without the quotes around it."""
    data = plain.encode("utf-8", "surrogateescape")
    # For a shell: escaped in double quotes, `'` written in one of two ways in single quotes, or as `printf %q` does.
    yield re.sub(r"[\"$`\\]", r"\\\g<0>", plain)
    yield from (plain.replace("'", "'\\''"), plain.replace("'", "'\"'\"'"))
    yield re.sub(r"[^\w@%+=:./~#-]", r"\\\g<0>", plain)
    # Python's `repr` escapes `'` only if the whole text contains both kinds of quotes.
    yield from (repr(plain)[1:-1], repr(f"'\"{plain}")[4:-1], repr(data)[2:-1], repr(b"'\"" + data)[5:-1])
    # git, `ls -Q` and `ls -b`, and `ls` on a terminal.
    yield _c_escaped(data, also=b'"\\')
    yield from (re.sub(r"[\\ ]", r"\\\g<0>", plain), _c_escaped(data, also=b"\\ "))
    yield _shell_escaped(data)
    yield from (_caret_escaped(data), _caret_escaped(data).replace("\t", "^I"))


def _c_escaped(data: bytes, *, also: bytes) -> str:
    r"""Return bytes with C escapes, in octal where C has no letter for them.

    >>> _c_escaped('"pä"\t'.encode(), also=b'"')
    '\\"p\\303\\244\\"\\t'
    """
    return "".join(
        f"\\{_MNEMONICS[byte]}"
        if byte in _MNEMONICS
        else f"\\{byte:03o}"
        if not 32 <= byte < 127
        else f"\\{chr(byte)}"
        if byte in also
        else chr(byte)
        for byte in data
    )


def _shell_escaped(data: bytes) -> str:
    r"""Return bytes as `ls` prints a file name within single quotes if it cannot print some of them.

    >>> _shell_escaped("it's ä.".encode())
    "it'\\''s '$'\\303\\244''."
    """
    runs = re.split(rb"([^ -~]+)", data)
    texts = [f"'$'{_c_escaped(run, also=b'')}''" if at % 2 else run.decode() for at, run in enumerate(runs)]
    texts[0::2] = [text.replace("'", "'\\''") for text in texts[0::2]]
    return "".join(texts).removesuffix("''")


def _caret_escaped(data: bytes) -> str:
    """Return bytes as `cat -v` prints them.

    >>> _caret_escaped("pä".encode())
    'pM-CM-$'
    """
    return "".join(
        chr(byte)
        if byte in b"\t\n"
        else ("M-" if byte > 127 else "") + (f"^{chr(low ^ 64)}" if not 32 <= (low := byte & 127) < 127 else chr(low))
        for byte in data
    )


def _utf16_forms(value: str) -> Iterator[str]:
    """Yield what a reader of UTF-8 makes of UTF-16 in both byte orders: a NUL between all ASCII characters."""
    low_first = value.encode("utf-16-le", "surrogatepass").removesuffix(b"\0")
    high_first = value.encode("utf-16-be", "surrogatepass").removeprefix(b"\0")
    for data in (low_first, high_first):
        for errors in ("surrogateescape", "replace"):
            text = data.decode("utf-8", errors)
            if text.count("\ufffd") * 2 < len(text):
                yield text


def base64_forms(data: bytes) -> Iterator[str]:
    """Yield the part common to all base64 texts with these bytes at an offset of 0, 1 or 2, in both alphabets."""
    for offset in range(3):
        coded = b64encode(bytes(offset) + data).decode()
        # The first and last character may also contain bits of the neighbouring bytes.
        common = coded[(offset * 8 + 5) // 6 : (offset + len(data)) * 8 // 6]
        for known in (coded, common) if offset == 0 else (common,):
            yield from (known, known.replace("/", "\\/"), known.replace("+", "-").replace("/", "_"))
