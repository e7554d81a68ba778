"""The formats of keys and tokens that begin with a text of their own.

Vendors document these formats so that scanners find leaked keys. A format has the literal text that
it begins with, and a pattern of what follows. Lengths are minimums where a vendor has changed
them before: a key that is longer than documented is still a key.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

_ALNUM = "[A-Za-z0-9]"
_WORD = "[A-Za-z0-9_-]"
_HEX = "[A-Fa-f0-9]"
_BASE64 = "[A-Za-z0-9+/]"
_UUID = f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}"


class Format(NamedTuple):
    """One kind of key: the texts that it begins with, and a pattern of the rest.

    `random` says that the beginning is too common to be proof: the rest must look random too.
    """

    kind: str
    prefixes: tuple[str, ...]
    rest: str
    random: bool = False


def _format(kind: str, prefixes: str, rest: str, *, random: bool = False) -> Format:
    return Format(kind, tuple(prefixes.split()), rest, random)


_MODEL_PROVIDERS = [
    _format("anthropic", "sk-ant-", rf"{_WORD}{{24,400}}"),
    _format("openai", "sk-proj- sk-svcacct- sk-admin- sk-None-", rf"{_WORD}{{20,400}}"),
    _format("openai", "sess-", rf"{_ALNUM}{{40,60}}"),
    _format("openrouter", "sk-or-v1- sk-or-", rf"{_WORD}{{32,200}}"),
    _format("langfuse", "sk-lf-", _UUID),
    _format("provider-key", "sk-", rf"{_WORD}{{20,300}}", random=True),
    _format("elevenlabs", "sk_", rf"{_HEX}{{48,64}}"),
    _format("xai", "xai-", rf"{_ALNUM}{{40,200}}"),
    _format("groq", "gsk_", rf"{_ALNUM}{{40,100}}"),
    _format("perplexity", "pplx-", rf"{_ALNUM}{{32,80}}"),
    _format("huggingface", "hf_ api_org_", rf"{_ALNUM}{{30,60}}"),
    _format("replicate", "r8_", rf"{_ALNUM}{{30,60}}"),
    _format("nvidia", "nvapi-", rf"{_WORD}{{40,120}}"),
    _format("cerebras", "csk-", rf"{_ALNUM}{{32,80}}"),
    _format("together", "tgp_v1_", rf"{_WORD}{{30,80}}"),
    _format("fireworks", "fw_", rf"{_ALNUM}{{20,60}}", random=True),
    _format("langsmith", "lsv2_pt_ lsv2_sk_ ls__", rf"{_HEX}{{32}}(?:_{_HEX}{{6,16}})?"),
    _format("tavily", "tvly-", rf"{_WORD}{{20,80}}", random=True),
    _format("firecrawl", "fc-", rf"{_HEX}{{32}}"),
    _format("jina", "jina_", rf"{_WORD}{{40,90}}"),
    _format("voyage", "pa-", rf"{_WORD}{{40,60}}", random=True),
    _format("runpod", "rpa_", rf"{_ALNUM}{{30,60}}"),
    _format("cursor", "crsr_ key_", rf"{_HEX}{{60,70}}"),
    _format("pinecone", "pcsk_", rf"{_WORD}{{40,100}}"),
    _format("deepgram", "dg_", rf"{_ALNUM}{{32,60}}", random=True),
    _format("wandb", "wandb_v1_", rf"{_WORD}{{40,120}}"),
    _format("cohere", "co_", rf"{_ALNUM}{{36,60}}", random=True),
    _format("e2b", "e2b_", rf"{_HEX}{{40,64}}"),
    _format("composio", "ak_", rf"{_WORD}{{18,40}}", random=True),
    _format("mem0", "m0-", rf"{_ALNUM}{{36,60}}"),
    _format("modal", "ak- as-", rf"{_ALNUM}{{20,26}}(?!{_WORD})", random=True),
    _format("factory", "fk-", rf"{_WORD}{{30,120}}", random=True),
    _format("amp", "sgamp_user_", rf"{_WORD}{{30,120}}"),
    _format("browserbase", "bb_live_ bb_test_", rf"{_WORD}{{24,60}}"),
    _format("vectara", "zut_ zqt_", rf"{_WORD}{{30,80}}"),
    _format("letta-cartesia", "sk-let- sk_car_", rf"{_WORD}{{20,120}}"),
]

_CLOUDS = [
    _format(
        "aws-access-key-id",
        "AKIA ASIA ABIA ACCA AROA AIDA A3T",
        r"(?<=A3T)[A-Z0-9][A-Z2-7]{16}|[A-Z0-9]{16}(?![A-Za-z0-9])",
    ),
    _format("aws-bedrock", "ABSK", rf"{_BASE64}{{80,300}}={{0,2}}"),
    _format("aws-bedrock", "bedrock-api-key-", rf"{_BASE64}{{40,2000}}={{0,2}}"),
    _format(
        "aws-session-token",
        "IQoJb3JpZ2lu FwoGZXIvYXdz FQoGZXIvYXdz",
        rf"{_BASE64}{{80,3000}}={{0,2}}",
    ),
    _format("aws-mws", "amzn.mws.", _UUID),
    _format("google-api-key", "AIza", rf"{_WORD}{{33,40}}"),
    _format("google-api-key", "AQ.Ab", rf"{_WORD}{{40,80}}"),
    _format("google-oauth-token", "ya29.", r"[A-Za-z0-9_.-]{20,2000}"),
    _format("google-oauth-secret", "GOCSPX-", rf"{_WORD}{{24,40}}"),
    _format("google-refresh-token", "1//0", rf"{_WORD}{{30,200}}"),
    _format("google-hmac", "GOOG1E GOOG", r"[A-Z0-9]{20,60}", random=True),
    _format("alibaba", "LTAI", rf"{_ALNUM}{{12,30}}(?!{_ALNUM})", random=True),
    _format("tencent", "AKID", rf"{_ALNUM}{{32}}(?!{_ALNUM})", random=True),
    _format("yandex", "AQVN y0_ t1.9eu", r"[A-Za-z0-9_.=-]{34,400}", random=True),
    _format("digitalocean", "dop_v1_ doo_v1_ dor_v1_", rf"{_HEX}{{40,80}}"),
    _format("digitalocean-spaces", "DO00", r"[A-Z0-9]{16}(?![A-Za-z0-9])", random=True),
    _format("cloudflare", "cfut_ cfat_ cfk_", rf"{_WORD}{{36,80}}"),
    _format("cloudflare-origin-ca", "v1.0-", rf"{_HEX}{{24}}-{_HEX}{{100,200}}"),
    _format("heroku", "HRKU-", rf"{_WORD}{{30,80}}"),
    _format("flyio", "fo1_ fm1a_ fm1r_ fm2_", r"[A-Za-z0-9+/_=,-]{40,4000}"),
    _format("render", "rnd_", rf"{_ALNUM}{{24,60}}"),
    _format("netlify", "nfp_ nfc_ nfo_ nfu_", rf"{_ALNUM}{{30,60}}"),
    _format("vercel", "vcp_ vci_ vca_ vcr_ vck_ vercel_blob_rw_", rf"{_WORD}{{24,100}}"),
    _format("supabase", "sbp_ sbp_v0_ sb_secret_", rf"{_WORD}{{30,80}}"),
    _format("neon", "napi_", rf"{_ALNUM}{{40,100}}"),
    _format("neon", "npg_", rf"{_ALNUM}{{12,24}}(?!{_WORD})"),
    _format("deno", "ddp_ ddo_", rf"{_ALNUM}{{32,50}}"),
    _format("depot", "depot_project_ depot_org_ depot_user_", rf"{_ALNUM}{{40,80}}"),
    _format("planetscale", "pscale_tkn_ pscale_oauth_ pscale_pw_", r"[\w=.-]{32,64}"),
    _format("databricks", "dapi dose dkea", rf"{_HEX}{{32}}(?:-\d)?"),
    _format("pulumi", "pul-", rf"{_HEX}{{40}}"),
    _format("scalingo", "tk-us-", rf"{_WORD}{{40,60}}"),
    _format("scaleway", "SCW", r"[A-Z0-9]{17}(?![A-Za-z0-9])", random=True),
    _format("ovh-linode-hetzner", "hcloud_", rf"{_ALNUM}{{40,80}}"),
    _format("vault", "hvs. hvb. hvr.", rf"{_WORD}{{20,400}}"),
    _format("vault", "s.", rf"{_ALNUM}{{24}}(?![A-Za-z0-9_.(])", random=True),
    _format("doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"[A-Za-z0-9._-]{36,120}"),
    _format("infisical", "st.", rf"{_HEX}{{24}}\.{_HEX}{{32}}\.{_HEX}{{32}}"),
    _format("1password", "ops_eyJ", rf"{_BASE64}{{100,4000}}={{0,3}}"),
    _format(
        "1password",
        "A3-",
        r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}",
    ),
    _format("openshift", "sha256~", rf"{_WORD}{{40,50}}"),
    _format("tailscale", "tskey-", rf"{_WORD}{{16,120}}"),
    _format("ngrok", "ngrok_", rf"{_ALNUM}{{30,80}}", random=True),
    _format("fastly", "fastly_", rf"{_WORD}{{32}}", random=True),
]

_DEVELOPER_TOOLS = [
    _format("github", "ghp_ gho_ ghu_ ghs_ ghr_", rf"{_ALNUM}{{30,255}}"),
    _format("github", "github_pat_", r"[A-Za-z0-9_]{50,255}"),
    _format(
        "gitlab",
        "glpat- gldt- glrt- glrtr- glft- glsoat- glimt- glagent- gloas- glffct- glcbt- glwt- "
        "glptt- GR1348941",
        r"[A-Za-z0-9_-]{20,300}(?:\.[a-z0-9]{2}\.?[a-z0-9]{7})?",
    ),
    _format("gitlab-session", "_gitlab_session=", rf"{_ALNUM}{{32}}"),
    _format("bitbucket", "ATBB", rf"{_ALNUM}{{24,60}}"),
    _format("atlassian", "ATATT3 ATCTT3 ATSTT3", r"[A-Za-z0-9_=-]{50,400}"),
    _format("trello", "ATTA", rf"{_HEX}{{64,80}}"),
    _format("socket", "sktsec_", rf"{_WORD}{{30,120}}"),
    _format("inngest", "signkey-prod- signkey-test- signkey-branch-", rf"{_HEX}{{32,64}}"),
    _format("trigger-dev", "tr_dev_ tr_stg_ tr_prod_ tr_pat_", rf"{_ALNUM}{{16,60}}"),
    _format("polar", "polar_oat_ polar_pat_ polar_whs_", rf"{_WORD}{{30,80}}"),
    _format("dub", "dub_", rf"{_ALNUM}{{24}}(?!{_WORD})", random=True),
    _format("npm", "npm_", rf"{_ALNUM}{{30,60}}", random=True),
    _format("pypi", "pypi-Ag", rf"{_WORD}{{40,1000}}"),
    _format("rubygems", "rubygems_", rf"{_HEX}{{40,64}}"),
    _format("nuget", "oy2", r"[a-z0-9]{43}(?![a-z0-9])", random=True),
    _format("crates-io", "cio", rf"{_ALNUM}{{32}}(?!{_ALNUM})", random=True),
    _format("clojars", "CLOJARS_", rf"{_ALNUM}{{50,70}}"),
    _format("jsr", "jsrp_ jsrd_", rf"{_ALNUM}{{32,64}}"),
    _format("docker", "dckr_pat_ dckr_oat_", rf"{_WORD}{{20,60}}"),
    _format("artifactory", "AKCp cmVmd", rf"{_ALNUM}{{59,90}}"),
    _format("circleci", "CCIPAT_ CCIPRJ_", rf"{_WORD}{{30,100}}"),
    _format("buildkite", "bkua_ bkct_ bkaj_", rf"{_ALNUM}{{30,80}}"),
    _format("sonarqube", "squ_ sqp_ sqa_", rf"{_HEX}{{40}}"),
    _format("sourcegraph", "sgp_ slk_", rf"(?:{_HEX}{{16}}_|local_)?{_HEX}{{40,64}}"),
    _format("snyk", "snyk_uat. snyk_sat.", r"[A-Za-z0-9._-]{30,200}"),
    _format("postman", "PMAK-", rf"{_HEX}{{24}}-{_HEX}{{34}}"),
    _format("prefect", "pnu_ pnb_", rf"{_ALNUM}{{36}}"),
    _format("readme", "rdme_", r"[a-z0-9]{60,80}"),
    _format("launchdarkly", "sdk- mob-", _UUID),
    _format("launchdarkly", "api-", _UUID),
    _format("contentful", "CFPAT-", rf"{_WORD}{{40,60}}"),
    _format("octopus", "API-", r"[A-Z0-9]{26}(?![A-Z0-9])", random=True),
    _format("linear", "lin_api_ lin_oauth_ lin_wh_", rf"{_ALNUM}{{32,80}}"),
    _format("notion", "ntn_", rf"{_ALNUM}{{40,60}}"),
    _format("notion", "secret_", rf"{_ALNUM}{{40,60}}", random=True),
    _format("figma", "figd_ figo_ figu_ figor_ figoh_", rf"{_WORD}{{30,120}}"),
    _format("airtable", "pat", rf"{_ALNUM}{{14}}\.{_HEX}{{64}}"),
    _format("asana", "0/ 1/ 2/", rf"(?<=0/){_HEX}{{32}}|\d{{12,20}}(?:/\d{{12,20}})?:{_HEX}{{32}}"),
    _format("monday-clickup", "pk_", r"\d{6,10}_[A-Z0-9]{32}"),
    _format("hubspot", "pat-na1- pat-na2- pat-eu1- pat-ap1-", _UUID),
    _format("typeform", "tfp_", r"[A-Za-z0-9_.=-]{40,80}"),
    _format("frameio", "fio-u-", r"[A-Za-z0-9_=-]{50,80}"),
    _format(
        "dynatrace", "dt0c01. dt0s01. dt0s02. dt0s16.", r"[A-Za-z0-9-]{8,24}\.[A-Za-z0-9]{40,80}"
    ),
    _format("grafana", "glsa_", rf"{_ALNUM}{{32}}_{_HEX}{{8}}"),
    _format("grafana", "glc_ eyJrIjoi", rf"{_BASE64}{{30,400}}={{0,3}}"),
    _format(
        "new-relic", "NRAK- NRII- NRIQ- NRRA- NRSP- NRJS- NRBR- NRAL-", r"[A-Za-z0-9_-]{19,64}"
    ),
    _format("new-relic-license", "eu01xx", r"[A-Za-z0-9]{30,34}(?:NRAL)?"),
    _format("datadog", "ddapp_ ddpat_ ddsat_ pub_dd", rf"{_ALNUM}{{30,80}}"),
    _format("sentry", "sntrys_ sntryu_ sntrya_ sntryi_", r"[A-Za-z0-9+/=_-]{40,400}"),
    _format("posthog", "phx_ phs_ phr_", rf"{_ALNUM}{{30,80}}"),
    _format("honeycomb", "hcaik_ hcbik_ hcxik_ hcxlk_", r"[a-z0-9]{50,70}"),
    _format("age", "AGE-SECRET-KEY-1", r"[A-Z0-9]{50,70}"),
    _format("infracost", "ico-", rf"{_ALNUM}{{32}}"),
    _format("harness", "pat. sat.", rf"{_WORD}{{22}}\.{_ALNUM}{{24}}\.{_ALNUM}{{20}}"),
    _format("mapbox", "sk.eyJ", r"[A-Za-z0-9_-]{40,120}\.[A-Za-z0-9_-]{20,30}"),
    _format("duffel", "duffel_test_ duffel_live_", r"[A-Za-z0-9_=-]{40,60}"),
    _format("lob", "live_ test_", rf"(?:pub_)?{_HEX}{{31,35}}(?!{_HEX})"),
    _format("easypost", "EZAK EZTK", rf"{_ALNUM}{{50,60}}"),
    _format("settlemint", "sm_aat_ sm_pat_ sm_sat_", rf"{_ALNUM}{{16,40}}"),
    _format("intra42", "s-s4t2ud- s-s4t2af-", rf"{_HEX}{{64}}"),
    _format("shippo", "shippo_live_ shippo_test_", rf"{_HEX}{{40}}"),
    _format("adobe", "p8e-", rf"{_WORD}{{30,40}}"),
    _format("defined-networking", "dnkey-", r"[A-Za-z0-9=_-]{26}-[A-Za-z0-9=_-]{52}"),
    _format(
        "authress",
        "sc_ ext_ scauth_ authress_",
        r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][a-z0-9-]{10,32}\.[A-Za-z0-9+/_=-]{30,120}",
    ),
]

_MESSAGES_AND_PAYMENTS = [
    _format(
        "slack",
        "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxc- xoxd- xoxe- xoxe.xoxb- xoxe.xoxp-",
        r"[A-Za-z0-9%/+=-]{18,400}",
    ),
    _format("slack", "xapp-", r"\d-[A-Za-z0-9]+-\d+-[A-Za-z0-9]{20,100}"),
    _format("slack", "xwfp-", rf"{_WORD}{{30,100}}"),
    _format(
        "slack-webhook",
        "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/",
        r"[A-Za-z0-9/+_-]{20,120}",
    ),
    _format(
        "discord-webhook",
        "discord.com/api/ discordapp.com/api/",
        r"(?:v\d{1,2}/)?webhooks/\d{10,25}/[A-Za-z0-9_-]{30,100}",
    ),
    _format(
        "teams-webhook",
        "webhook.office.com/webhookb2/ outlook.office.com/webhook/",
        r"[A-Za-z0-9@/-]{60,300}",
    ),
    _format("zapier-webhook", "hooks.zapier.com/hooks/catch/", r"[A-Za-z0-9/]{8,60}"),
    _format(
        "feishu-webhook",
        "open.feishu.cn/open-apis/bot/v2/hook/ open.larksuite.com/open-apis/bot/v2/hook/",
        _UUID,
    ),
    _format("wecom-webhook", "qyapi.weixin.qq.com/cgi-bin/webhook/send?key=", _UUID),
    _format(
        "ifttt-webhook",
        "maker.ifttt.com/trigger/",
        rf"{_WORD}{{1,80}}/(?:json/)?with/key/{_WORD}{{10,60}}",
    ),
    _format("make-webhook", "hook.make.com/ make.com/", r"[a-z0-9]{32}(?![a-z0-9])", random=True),
    _format("pagerduty-webhook", "events.pagerduty.com/integration/", rf"{_HEX}{{32}}"),
    _format("healthcheck", "hc-ping.com/", _UUID),
    _format(
        "stripe", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", rf"{_ALNUM}{{16,255}}"
    ),
    _format("webhook-secret", "whsec_", r"[A-Za-z0-9+/=_-]{24,100}"),
    _format("twilio", "AC SK", rf"{_HEX}{{32}}(?!{_ALNUM})", random=True),
    _format("sendgrid", "SG.", r"[A-Za-z0-9_-]{16,30}\.[A-Za-z0-9_-]{30,60}"),
    _format("mailgun", "key-", rf"{_HEX}{{32}}(?!{_ALNUM})"),
    _format("mailgun", "pubkey-", rf"{_HEX}{{32}}(?!{_ALNUM})"),
    _format("brevo", "xkeysib- xsmtpsib-", rf"{_HEX}{{60,70}}-{_ALNUM}{{16}}"),
    _format("resend", "re_", rf"{_ALNUM}{{8,12}}_{_ALNUM}{{20,30}}", random=True),
    _format("mailersend", "mlsn.", rf"{_HEX}{{60,70}}"),
    _format("square", "EAAA", rf"{_WORD}{{40,80}}", random=True),
    _format("square", "sq0atp- sq0csp- sq0idp- sq0csb-", rf"{_WORD}{{20,60}}"),
    _format(
        "paypal-braintree",
        "access_token$production$ access_token$sandbox$",
        r"[a-z0-9]{16}\$[a-f0-9]{32}",
    ),
    _format("paypal", "A21AA", rf"{_WORD}{{60,120}}"),
    _format("plaid", "access-sandbox- access-development- access-production-", _UUID),
    _format("razorpay", "rzp_live_ rzp_test_", rf"{_ALNUM}{{14,30}}"),
    _format("flutterwave", "FLWSECK_TEST- FLWSECK- FLWPUBK_TEST-", rf"{_ALNUM}{{12,40}}(?:-X)?"),
    _format("gocardless", "live_", rf"{_WORD}{{40}}(?!{_WORD})", random=True),
    _format("adyen", "AQE", r"[A-Za-z0-9+/=-]{80,200}", random=True),
    _format("shopify", "shpat_ shpca_ shppa_ shpss_ shptka_ shpua_", rf"{_HEX}{{32}}"),
    _format("facebook", "EAA", rf"{_ALNUM}{{80,400}}", random=True),
    _format("twitter-bearer", "AAAAAAAAAAAAAAAAAAAA", r"[A-Za-z0-9%]{60,200}"),
    _format("dropbox", "sl.", rf"{_WORD}{{100,2000}}"),
    _format("intercom", "dG9rO", r"[A-Za-z0-9+/=]{50,80}"),
    _format("instagram", "IGQV IGAA", rf"{_WORD}{{80,300}}"),
    _format("linkedin", "WPL_AP1.", r"[A-Za-z0-9+/=._-]{16,60}"),
]

_TOKENS = [
    # The header of a token is JSON in base64: `{"`, `{ "`, or a brace and a line break.
    _format(
        "jwt",
        "eyJ eyAi ewog ewoJ ewoi",
        r"[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{6,20000}(?:\.[A-Za-z0-9_-]{0,20000}){1,3}",
    ),
    _format(
        "jwe",
        "eyJ",
        r"[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{0,4000}\.[A-Za-z0-9_-]{8,40}"
        r"\.[A-Za-z0-9_-]{6,20000}\.[A-Za-z0-9_-]{16,60}",
    ),
    _format("django", "django-insecure-", r"[a-z0-9!@#$%^&*(_=+)-]{40,60}"),
    _format("password-hash", "$2a$ $2b$ $2y$", r"\d\d\$[A-Za-z0-9./]{53}"),
    _format(
        "password-hash",
        "$6$ $5$ $1$ $y$ $argon2id$ $argon2i$",
        r"[A-Za-z0-9./=,$+]{30,300}",
        random=True,
    ),
]

FORMATS: list[Format] = [
    *_MODEL_PROVIDERS,
    *_CLOUDS,
    *_DEVELOPER_TOOLS,
    *_MESSAGES_AND_PAYMENTS,
    *_TOKENS,
]


# Keys that are recognised by a text in their middle or at their end: a kind, the text, patterns of
# what is before and after it, and how many characters before it are looked at.
_INFIXES = [
    ("telegram", ":A", r"(?<!\d)\d{6,12}", rf"{_WORD}{{32,36}}(?!{_WORD})", 14),
    ("azure-client-secret", "Q~", r"[A-Za-z0-9_~.-]{3}\d", r"[A-Za-z0-9_~.-]{30,36}", 4),
    ("azure-devops", "AZDO", rf"{_ALNUM}{{70,90}}", rf"{_ALNUM}{{4}}(?!{_ALNUM})", 92),
    ("terraform-cloud", ".atlasv1.", rf"{_ALNUM}{{10,20}}", r"[A-Za-z0-9_=-]{50,90}", 22),
    ("mailchimp", "-us", rf"(?<!{_ALNUM}){_HEX}{{32}}", r"\d{1,2}(?!\w)", 34),
    ("maxmind", "_mmk", rf"{_ALNUM}{{6}}_{_ALNUM}{{29}}", r"(?!\w)", 37),
    ("new-relic-license", "NRAL", rf"(?<!{_ALNUM}){_ALNUM}{{36}}", rf"(?!{_ALNUM})", 38),
    (
        "facebook-app",
        "|",
        r"(?<!\d)\d{15,16}",
        rf"(?=[a-z]*[A-Z0-9_-]){_WORD}{{27,40}}(?!{_WORD})",
        18,
    ),
]


class PrefixRule(NamedTuple):
    """The compiled form of one prefix of a format."""

    kind: str
    prefix: str
    rest: re.Pattern[str]
    random: bool


@cache
def prefix_rules() -> dict[str, list[PrefixRule]]:
    """Return the rules of each prefix. Compiled on first use."""
    rules: dict[str, list[PrefixRule]] = {}
    for entry in FORMATS:
        rest = re.compile(entry.rest)
        for prefix in entry.prefixes:
            rules.setdefault(prefix, []).append(PrefixRule(entry.kind, prefix, rest, entry.random))
    return rules


@cache
def prefix_pattern() -> re.Pattern[str]:
    """Return the pattern of all prefixes where a word begins: the longest prefix at a place."""
    prefixes = sorted(prefix_rules())
    firsts = re.escape("".join({prefix[0] for prefix in prefixes}))  # which is quicker to check
    return re.compile(rf"(?<![A-Za-z0-9])(?=[{firsts}])({alternatives(prefixes)})")


@cache
def escaped_prefix_pattern() -> re.Pattern[str]:
    """Return the pattern of all prefixes after an escaped line break or encoded character."""
    escape = r"(?:\\(?:[nrtbf]|u00[0-9a-f]{2})|%[0-9A-F]{2})"
    return re.compile(rf"{escape}({alternatives(sorted(prefix_rules()))})")


def alternatives(texts: list[str]) -> str:
    """Return a pattern of several texts that reads each common beginning once."""
    by_first: dict[str, list[str]] = {}
    for text in texts:
        if text:
            by_first.setdefault(text[0], []).append(text[1:])
    branches = [re.escape(first) + alternatives(rests) for first, rests in by_first.items()]
    if not branches:
        return ""
    joined = branches[0] if len(branches) == 1 and "" not in texts else f"(?:{'|'.join(branches)})"
    return f"{joined}?" if "" in texts else joined


class InfixRule(NamedTuple):
    """The compiled form of a key that is recognised by a text in its middle or at its end."""

    kind: str
    infix: str
    before: re.Pattern[str]
    after: re.Pattern[str]
    reach: int


@cache
def infix_rules() -> list[InfixRule]:
    """Return the rules of keys without a prefix. Compiled on first use."""
    return [
        InfixRule(kind, infix, re.compile(f"(?:{before})\\Z"), re.compile(after), reach)
        for kind, infix, before, after, reach in _INFIXES
    ]
