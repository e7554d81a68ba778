"""Text that a model or a tool wrote, as HTML that can do nothing.

HTML in it is shown as it stands; what Markdown makes of the rest passes nh3 with a short list of
tags. Pictures by address are links: a page asks nobody else for anything.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from segue.model.ansi import strip_colors

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token
    from markupsafe import Markup
    from pygments.formatters import HtmlFormatter

MAX_MARKDOWN = 60_000  # characters beyond which a text is shown as it stands
MAX_HIGHLIGHT = 20_000  # characters of one piece of code that get colours

# Languages that get colours. Others' lexers may take minutes for a text that is made to that end.
_LANGUAGES = {
    *("bash", "bat", "c", "clojure", "cmake", "console", "cpp", "csharp", "css", "dart"),
    *("diff", "docker", "elixir", "erlang", "fortran", "fsharp", "go", "graphql", "groovy"),
    *("haskell", "hcl", "html", "http", "ini", "java", "javascript", "json", "jsx", "julia"),
    *("kotlin", "less", "lua", "make", "markdown", "nginx", "nix", "objective-c", "ocaml"),
    *("perl", "php", "powershell", "protobuf", "pycon", "python", "r", "ruby", "rust"),
    *("scala", "scss", "sql", "swift", "terraform", "toml", "tsx", "typescript", "vim"),
    *("xml", "yaml", "zig"),
}
# Neither do these get any, for the same reason: endless lines, and much of nothing.
_COSTLY = re.compile(r"[^\n]{1000}|\s{200}")
_TAGS = {
    *("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "ul", "ol", "li"),
    *("strong", "em", "s", "a", "code", "pre", "span", "table", "thead", "tbody", "tr", "th", "td"),
    "div",
}
_ATTRIBUTES = {
    "a": {"href", "title", "target"},
    "ol": {"start"},
    "code": {"class"},
    "span": {"class"},
    "pre": {"tabindex"},
    "div": {"class", "tabindex"},
}
# Control characters, lone surrogates, what Unicode says is no character, and what turns the order
# of others around: a command must not look like another one.
_NONE = "".join(chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
_TURNS = "\u202a-\u202e\u2066-\u2069"
_UNSENDABLE = re.compile(
    rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_TURNS}\ud800-\udfff\ufdd0-\ufdef{_NONE}]"
)
_ADDRESS = re.compile(r"https?://[^\s<>\"'`\\]+[^\s<>\"'`\\.,;:!?)\]}*_]")


def markdown(text: str) -> Markup:
    """A text as people read it."""
    if len(text) > MAX_MARKDOWN:
        from markupsafe import Markup

        return Markup('<div class="plain">{}</div>').format(sendable(text))
    return _markdown(text)


@lru_cache(maxsize=2048)
def _markdown(text: str) -> Markup:
    import nh3
    from markupsafe import Markup

    rendered = _parser().render(sendable(text))
    clean = nh3.clean(
        rendered,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
    )
    return Markup(clean)


def code(text: str, language: str = "") -> Markup:
    """A piece of code with its colours."""
    from markupsafe import Markup

    text = strip_colors(text)
    inner = highlight(text, language) or html.escape(sendable(text))
    return Markup(f'<pre tabindex="0"><code>{inner}</code></pre>')


def highlight(text: str, language: str, _: str = "") -> str:
    """The inside of a `code` element, or nothing where the language is not known."""
    if not language or len(text) > MAX_HIGHLIGHT:
        return ""
    lexer = _lexer(language.lower())
    if lexer is None or _COSTLY.search(text):
        return ""
    from pygments import highlight as colour

    coloured: str = colour(sendable(text), lexer, _formatter())
    return coloured


def ticked(words: str) -> Markup:
    """A sentence of ours, what stands between backticks in it as code."""
    from markupsafe import Markup

    parts = html.escape(sendable(words)).split("`")
    if len(parts) % 2 == 0:
        return Markup("`".join(parts))
    return Markup(
        "".join(f"<code>{each}</code>" if at % 2 else each for at, each in enumerate(parts))
    )


def sendable(text: str) -> str:
    """The text, with a mark for every character that a page cannot hold."""
    if text.isprintable():  # as most are, and quick to see
        return text
    return _UNSENDABLE.sub("\N{REPLACEMENT CHARACTER}", text)


@lru_cache(maxsize=128)
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None
    return None if _LANGUAGES.isdisjoint(lexer.aliases) else lexer


@cache
def _formatter() -> HtmlFormatter[str]:
    from pygments.formatters import HtmlFormatter

    return HtmlFormatter(nowrap=True, classprefix="k-")


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "highlight": highlight})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("addresses", _link_addresses)
    # Wide things scroll by themselves, and can be reached by keyboard to do so.
    parser.add_render_rule("table_open", lambda *_: '<div class="wide" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.add_render_rule("image", _image)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    parser.add_render_rule("link_open", _link)
    # A page has one first heading, and that is the session's.
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    return parser


def _fence(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    token = tokens[index]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    return str(code(token.content, language))


def _heading(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    token = tokens[index]
    tag = f"h{min(6, int(token.tag[1]) + 2)}"
    return f"<{tag}>" if token.nesting == 1 else f"</{tag}>\n"


def _link(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    return _opening(str(tokens[index].attrs.get("href", "")))


def _image(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    token = tokens[index]
    name = html.escape(token.content or "image")
    return f"{_opening(str(token.attrs.get('src', '')))}{name}</a>"


def _opening(address: str) -> str:
    """A link's beginning. A file's name leads nowhere here, and is told to whoever asks."""
    leads = address.lower().startswith(("http://", "https://", "mailto:"))
    escaped = html.escape(address)
    return f'<a href="{escaped}" target="_blank">' if leads else f'<a title="{escaped}">'


def _link_addresses(state: StateCore) -> None:
    """Make links of addresses that stand in the text, as everybody writes them."""
    from markdown_it.token import Token

    for block in state.tokens:
        if block.type != "inline" or "://" not in block.content:
            continue
        made: list[Token] = []
        inside = 0
        for token in block.children or []:
            inside += token.nesting if token.type in ("link_open", "link_close") else 0
            if token.type != "text" or inside:
                made.append(token)
                continue
            end = 0
            for match in _ADDRESS.finditer(token.content):
                made.append(_text(token.content[end : match.start()]))
                made.append(Token("link_open", "a", 1, attrs={"href": match[0]}))
                made.append(_text(match[0]))
                made.append(Token("link_close", "a", -1))
                end = match.end()
            made.append(_text(token.content[end:]))
        block.children = made


def _text(content: str) -> Token:
    from markdown_it.token import Token

    return Token("text", "", 0, content=content)
