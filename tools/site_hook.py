"""A hook of mkdocs: makes the pages that are not stored, and joins the terms of the glossary to every page as tooltips."""

import re
import sys
from pathlib import Path

from mkdocs.structure.files import File

TOOLTIPS = ("cascade", "fence", "fork", "leftover", "ledger", "manifest", "pin", "seal", "stamp", "verdict")
"""Words that a reader may meet before they are explained. Others of the glossary occur in every line."""


def on_files(files, config):
    """Add the pages that are made when the site is built."""
    # Not at the top: mkdocs takes the first entry of the path away again after loading a hook.
    sys.path.insert(0, str(Path(__file__).parent))
    import python_reference

    files.append(File.generated(config, python_reference.PATH, content=python_reference.page()))
    return files


def on_page_markdown(markdown, page, config, **_):
    """Explain the glossary's words where they occur, by abbreviations, which the theme shows as tooltips."""
    if page.file.src_uri in ("glossary.md", "reference/python.md", "reference/commands.md"):
        return markdown
    explained = "".join(f"*[{word}]: {meaning}\n" for word, meaning in terms(config.docs_dir).items())
    return f"{markdown}\n\n{explained}"


def terms(docs):
    """Those words and what the glossary says of them."""
    rows = re.findall(
        r"^\| ([a-z, ]+?) \| (.+?) \|$", (Path(docs) / "glossary.md").read_text(), flags=re.MULTILINE
    )
    found = {word: meaning for words, meaning in rows for word in words.split(", ")}
    return {word: _plain(found[word]) for word in TOOLTIPS}


def _plain(text):
    return re.sub(r"\[([^\]]+)\]\([^)]*\)|[`*]", lambda found: found[1] or "", text)
