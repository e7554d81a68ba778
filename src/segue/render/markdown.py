"""Render untrusted Markdown and code as safe HTML.

HTML in the text is escaped. The rendered Markdown passes nh3 with a short list of allowed tags.
Images with a URL become links, so that a page loads nothing from other servers.
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

MAX_MARKDOWN_CHARACTERS = 60_000  # a longer text is shown as plain text
MAX_HIGHLIGHT_CHARACTERS = 20_000  # a longer code block is not highlighted

# Languages that are highlighted. The lexers of others may take minutes for a hostile text.
_LANGUAGES = {
    *("bash", "bat", "c", "clojure", "cmake", "console", "cpp", "csharp", "css", "dart"),
    *("diff", "docker", "elixir", "erlang", "fortran", "fsharp", "go", "graphql", "groovy"),
    *("haskell", "hcl", "html", "http", "ini", "java", "javascript", "json", "jsx", "julia"),
    *("kotlin", "less", "lua", "make", "markdown", "nginx", "nix", "objective-c", "ocaml"),
    *("perl", "php", "powershell", "protobuf", "pycon", "python", "r", "ruby", "rust"),
    *("scala", "scss", "sql", "swift", "terraform", "toml", "tsx", "typescript", "vim"),
    *("xml", "yaml", "zig"),
}
# Very long lines and much white space are not highlighted, for the same reason.
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
# Control characters, lone surrogates, noncharacters, and marks that change the direction of text:
# a command must not look like another one.
_NONCHARACTERS = "".join(chr(plane << 16 | end) for plane in range(17) for end in (0xFFFE, 0xFFFF))
_DIRECTION_MARKS = "\u202a-\u202e\u2066-\u2069"
_UNSENDABLE = re.compile(
    rf"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_DIRECTION_MARKS}\ud800-\udfff\ufdd0-\ufdef{_NONCHARACTERS}]"
)
_URL = re.compile(r"https?://[^\s<>\"'`\\]+[^\s<>\"'`\\.,;:!?)\]}*_]")


def markdown(text: str) -> Markup:
    """Return Markdown as safe HTML."""
    if len(text) > MAX_MARKDOWN_CHARACTERS:
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
    """Return code as HTML, highlighted if the language is known."""
    from markupsafe import Markup

    text = strip_colors(text)
    inner = highlight(text, language) or html.escape(sendable(text))
    return Markup(f'<pre tabindex="0"><code>{inner}</code></pre>')


def highlight(text: str, language: str, _: str = "") -> str:
    """Return the inside of a `code` element; empty if the code is not highlighted."""
    if not language or len(text) > MAX_HIGHLIGHT_CHARACTERS:
        return ""
    lexer = _lexer(language.lower())
    if lexer is None or _COSTLY.search(text):
        return ""
    from pygments import highlight as pygments_highlight

    highlighted: str = pygments_highlight(sendable(text), lexer, _formatter())
    return highlighted


def format_backticks(message: str) -> Markup:
    """Return one of segue's own messages as HTML, with text in backticks as code."""
    from markupsafe import Markup

    parts = html.escape(sendable(message)).split("`")
    if len(parts) % 2 == 0:
        return Markup("`".join(parts))
    return Markup(
        "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
    )


def sendable(text: str) -> str:
    """Return the text with U+FFFD for every character that a page must not contain."""
    if text.isprintable():  # a fast check that most texts pass
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
    parser.core.ruler.push("urls", _link_urls)
    # Wide tables scroll on their own, also by keyboard.
    parser.add_render_rule("table_open", lambda *_: '<div class="wide" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.add_render_rule("image", _image)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    parser.add_render_rule("link_open", _link)
    # The only first-level heading of a page is the session's title.
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
    return _link_tag(str(tokens[index].attrs.get("href", "")))


def _image(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    token = tokens[index]
    name = html.escape(token.content or "image")
    return f"{_link_tag(str(token.attrs.get('src', '')))}{name}</a>"


def _link_tag(url: str) -> str:
    """Return the opening tag of a link. A file name cannot be opened; it becomes a tooltip."""
    can_open = url.lower().startswith(("http://", "https://", "mailto:"))
    escaped = html.escape(url)
    return f'<a href="{escaped}" target="_blank">' if can_open else f'<a title="{escaped}">'


def _link_urls(state: StateCore) -> None:
    """Turn URLs in the text into links."""
    from markdown_it.token import Token

    for block in state.tokens:
        if block.type != "inline" or "://" not in block.content:
            continue
        tokens: list[Token] = []
        link_depth = 0
        for token in block.children or []:
            link_depth += token.nesting if token.type in ("link_open", "link_close") else 0
            if token.type != "text" or link_depth:
                tokens.append(token)
                continue
            end = 0
            for match in _URL.finditer(token.content):
                tokens.append(_text(token.content[end : match.start()]))
                tokens.append(Token("link_open", "a", 1, attrs={"href": match[0]}))
                tokens.append(_text(match[0]))
                tokens.append(Token("link_close", "a", -1))
                end = match.end()
            tokens.append(_text(token.content[end:]))
        block.children = tokens


def _text(content: str) -> Token:
    from markdown_it.token import Token

    return Token("text", "", 0, content=content)
