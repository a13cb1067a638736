"""Text from elsewhere as a terminal may show it: nothing in it steers. Pure."""


def one_line(text: str) -> str:
    """Return the text in one line, with a question mark for what cannot be printed."""
    return "".join(char if char.isprintable() else "?" for char in text.replace("\n", " "))


def escaped(text: str) -> str:
    """Return the text in one line, with escapes, as of Python, for what cannot be printed."""
    return "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def lines(text: str) -> str:
    return "\n".join(map(one_line, text.split("\n")))
