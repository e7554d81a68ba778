"""Parse Markdown and highlight code. Hostile text can make both very slow.

HTML in the text is escaped. The rendered Markdown passes nh3 with a short list of allowed tags.
Images with a URL become links, so that a page loads nothing from other servers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from segue.model.ansi import strip_colors

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token
    from pygments.formatters import HtmlFormatter

CodeFormatter = Callable[[str, str], str]  # of code and its language

MAX_HIGHLIGHT_CHARACTERS = 20_000  # a longer code block is not highlighted
MAX_LANGUAGE_CHARACTERS = 40  # of a code block's language
MAX_HTML_CHARACTERS = 2_000_000  # a reference can be repeated until a short text fills the memory

# Languages that are highlighted. Others have slower lexers, and are seldom written by agents.
_LANGUAGES = {
    *("bash", "bat", "c", "clojure", "cmake", "console", "cpp", "csharp", "css", "dart"),
    *("diff", "docker", "elixir", "erlang", "fortran", "fsharp", "go", "graphql", "groovy"),
    *("haskell", "hcl", "html", "http", "ini", "java", "javascript", "json", "jsx", "julia"),
    *("kotlin", "less", "lua", "make", "markdown", "nginx", "nix", "objective-c", "ocaml"),
    *("perl", "php", "powershell", "protobuf", "pycon", "python", "r", "ruby", "rust"),
    *("scala", "scss", "sql", "swift", "terraform", "toml", "tsx", "typescript", "vim"),
    *("xml", "yaml", "zig"),
}
# Very long lines and much white space make many lexers slow.
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
    "th": {"class"},
    "td": {"class"},
}
_ALIGNMENTS = ("left", "center", "right")
_URL = re.compile(r"https?://[^\s<>\"'`\\]+[^\s<>\"'`\\.,;:!?)\]}*_]")


def parse_markdown(text: str) -> str:
    """Return Markdown as safe HTML. Raises ValueError if the HTML is very long."""
    return _parse(text, highlight)


def parse_markdown_without_lexers(text: str) -> str:
    """Return Markdown as safe HTML, without highlighted code.

    Raises ValueError if the HTML is very long.
    """
    return _parse(text, lambda code, _: html.escape(code))


def _parse(text: str, format_code: CodeFormatter) -> str:
    import nh3

    rendered: str = _parser().render(text, {"format_code": format_code})
    if len(rendered) > MAX_HTML_CHARACTERS:
        raise ValueError(
            f"the HTML has {len(rendered)} characters, more than {MAX_HTML_CHARACTERS}"
        )
    clean: str = nh3.clean(
        rendered,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
    )
    return clean


def highlight(text: str, language: str) -> str:
    """Return code as HTML, highlighted if its language is known and it is short enough."""
    lexer = _lexer(language.lower()) if can_highlight(text, language) else None
    if lexer is None:
        return html.escape(text)
    from pygments import highlight as pygments_highlight

    highlighted: str = pygments_highlight(text, lexer, _formatter())
    return highlighted


def can_highlight(text: str, language: str) -> bool:
    """Return False if code has no language or is too long to be highlighted."""
    if not language or len(language) > MAX_LANGUAGE_CHARACTERS:
        return False
    return len(text) <= MAX_HIGHLIGHT_CHARACTERS and not _COSTLY.search(text)


def code_element(inner: str) -> str:
    """Return a block of code with this HTML inside."""
    return f'<div class="code"><pre tabindex="0"><code>{inner}</code></pre></div>'


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

    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["table", "strikethrough"])
    parser.core.ruler.push("urls", _link_urls)
    # Wide tables scroll on their own, also by keyboard.
    parser.add_render_rule("table_open", lambda *_: '<div class="wide" tabindex="0"><table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    parser.add_render_rule("th_open", _cell)
    parser.add_render_rule("td_open", _cell)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("fence", _fence)
    parser.add_render_rule("code_block", _fence)
    parser.add_render_rule("link_open", _link)
    # The only first-level heading of a page is the session's title.
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    return parser


def _fence(
    _: object,
    tokens: Sequence[Token],
    index: int,
    __: object,
    environment: Mapping[str, CodeFormatter],
) -> str:
    token = tokens[index]
    language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
    return code_element(environment["format_code"](strip_colors(token.content), language))


def _heading(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    token = tokens[index]
    tag = f"h{min(6, int(token.tag[1]) + 2)}"
    return f"<{tag}>" if token.nesting == 1 else f"</{tag}>\n"


def _cell(_: object, tokens: Sequence[Token], index: int, *__: object) -> str:
    """Return the opening tag of a table's cell; pages allow no inline styles, so it has a class."""
    token = tokens[index]
    alignment = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{token.tag} class="{alignment}">' if alignment in _ALIGNMENTS else f"<{token.tag}>"


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
