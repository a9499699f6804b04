"""What secrets are called and look like: data of the redactor, in RE2's syntax.

The forms of tokens are those that their issuers document, and that detect-secrets and gitleaks
look for. The least lengths are a choice: no longer than issued ones, so that most cut tokens are
hidden too, and longer than usual words.
"""

PASSWORDS = (
    r"pass(?:word|phrase|code)s?|requirepass|masterauth|sshpass|contrase(?:n\x{303}?|\x{f1})a"
    r"|passwort|palavra[_ -]passe|parola[_ ]d.ordine|kennwort|senha|mot[_ -]de[_ -]passe"
    r"|has\x{142}o|haslo|heslo|jelsz\x{f3}|wachtwoord|adgangskode|passord|salasana|\x{15f}ifre|sifre"
    r"|l(?:\x{f6}|o\x{308}?)senord|parol\x{103}|m\x{1ead}t kh\x{1ea9}u|kata[_ ]sandi"
    r"|пароль|гасло|лозинка|κωδικός|סיסמה|كلمة المرور|पासवर्ड|รหัสผ่าน"
    r"|密码|密碼|口令|密钥|金鑰|パスワード|暗証番号|비밀번호|암호"
)
"""Words for a password, in the languages of people who train models."""

NAMES = (
    r"[_-]passwd|[a-z0-9]passwd|[_-]pwd|secret|credentials?|sentry_dsn"
    r"|(?:api|bind|db|database|ftp|key|login|my|redis|root|sl|ssh|su|sudo|user|cloudant)[_-]?(?:pass|pwd|pw)"
    r"|(?:api|access|secret|private|priv|signing|encryption|account|licen[cs]e|auth|service|db"
    r"|database|client|subscription|instrumentation|sharedaccess|bootstrap)[_-]?key"
    r"|(?:access|api|app|auth|bearer|bot|client|cloudant|csrf|gh|github|gitlab|hf|hub|id|identity|jwt"
    r"|private|refresh|reset|secret|security|session|sl|slack|softlayer|telegram|user|vault|wandb)"
    r"[_-]?token|(?:shared[_-]?access|x-amz|x-goog)[_-]?signature"
)
"""Names of secrets, whatever the value. `token`, `key` and `pass` alone are not: `tokens: 1024`."""

AFTER_NAME = r"(?:[_-]?(?:id|data|str|b64|base64|json|value|text|raw|for|[0-9]{1,2})|s)?"
"""What may follow in the name: `client-key-data`, `api_key_2`; not `file` or `path`."""

WEAK_NAMES = (
    r"tokens?|auth|pass|passwd|pwd|pw|pat|jwt|sid|session(?:[_-]?id)?|ticket|parola|clave"
    r"|[_-]key|nvapi key|license"
)
"""Names of what is often no secret: hidden where the value looks random, too."""

CALLS = r"(?:Basic|Digest|Proxy|Password|Token|Bearer|NTLM|Kerberos)Auth(?:entication|enticator)?"
"""Classes whose arguments are a user and a password: `HTTPBasicAuth('bob', 'X')`."""

PROGRAMS = {
    r"sshpass|(?:docker|podman|nerdctl|buildah|skopeo|crane|oras|helm registry|oc|az|cqlsh)\b"
    r"[^\n|;&]*?\blogin|az|cqlsh|mongo(?:sh|dump|restore|export|import)?|rabbitmqadmin": "-p",
    r"(?:mysql|mariadb)[a-z-]*|7z[az]?|sshpass": "-p+",
    r"redis-cli|http|https": "-a",
    r"ldap(?:search|modify|add|delete|passwd|whoami)": "-w",
    r"unzip|zip|sqlcmd|bcp|ipmitool": "-P",
    r"openssl": r"-(?:k|K|pass(?:in|out)?)",
    r"modal": r"-(?:-token-secret|-token-id)",
}
"""Short options by the programs whose password they take; with `+`, in the same word."""

USER_OPTIONS = r"(?:-u|-U|--user|--proxy-user)"
"""Options of curl, wget and smbclient whose value is `user:password`."""

TOKENS = (
    ("OpenAI, Anthropic, LangFuse", r"sk-(?:ant|admin|lf|or|proj|svcacct)-[A-Za-z0-9_-]{12,}"),
    ("OpenAI and those like it", r"sk-[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]+T3BlbkFJ[A-Za-z0-9_-]+"),
    ("OpenAI sessions", r"sess-[A-Za-z0-9]{32,}"),
    ("Stripe, Clerk", r"[prs]k_(?:live|test|prod)_[A-Za-z0-9]{10,}"),
    ("Groq", r"gsk_[A-Za-z0-9]{20,}"),
    ("Cerebras", r"csk-[A-Za-z0-9]{32,}"),
    ("Fireworks", r"fw_[A-Za-z0-9]{22,}"),
    ("Modal", r"a[ks]-[A-Za-z0-9]{22}\b"),
    ("NVIDIA", r"nvapi-[A-Za-z0-9_-]{20,}"),
    ("Hugging Face", r"hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}"),
    ("W&B", r"wandb_v[0-9]_[A-Za-z0-9_-]{20,}|local-[0-9a-f]{40}"),
    ("Replicate", r"r8_[A-Za-z0-9]{30,}"),
    ("Perplexity", r"pplx-[A-Za-z0-9]{30,}"),
    ("xAI", r"xai-[A-Za-z0-9]{40,}"),
    ("RunPod", r"rpa_[A-Z0-9]{30,}"),
    ("Lambda", r"secret_[a-z]+_[0-9a-f]{32}(?:\.[A-Za-z0-9]+)?"),
    ("LangSmith", r"lsv2_[a-z]{2}_[A-Za-z0-9_]{30,}"),
    ("Tavily", r"tvly-[A-Za-z0-9-]{20,}"),
    ("Pinecone", r"pcsk_[A-Za-z0-9_]{20,}"),
    ("Kaggle", r"KGAT_[0-9a-f]{32}"),
    ("GitHub", r"gh[oprsu]_[A-Za-z0-9_]{16,}|github_pat_[A-Za-z0-9_]{20,}"),
    (
        "GitLab",
        (
            r"gl(?:agent|cbt|dt|ffct|ft|imt|oas|pat|ptt|rt|soat|wt)-[A-Za-z0-9_.-]{16,}"
            r"|GR1348941[A-Za-z0-9_-]{16,}"
        ),
    ),
    (
        "Slack",
        (
            r"(?i:xox[a-z])(?:\.xox[a-z])?-[A-Za-z0-9-]{8,}|(?i:xox[a-z])-(?:[0-9]+-)+[A-Za-z0-9]+"
            r"|xapp-[A-Za-z0-9-]{8,}"
        ),
    ),
    (
        "AWS",
        (
            r"(?:A3T[A-Z0-9]|A(?:BIA|CCA|GPA|IDA|IPA|KIA|NPA|NVA|ROA|SIA))[A-Z0-9]{16}"
            r"|ABSK[A-Za-z0-9+/]{100,}={0,2}|bedrock-api-key-[A-Za-z0-9+/=]{20,}"
            r"|k8s-aws-v1\.[A-Za-z0-9_=-]{16,}"
        ),
    ),
    (
        "Google",
        (
            r"AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{16,}|GOCSPX-[A-Za-z0-9_-]{20,}"
            r"|1//0[A-Za-z0-9_-]{30,}"
        ),
    ),
    ("Azure", r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    ("Alibaba, Tencent", r"LTAI[A-Za-z0-9]{16,24}|AKID[A-Za-z0-9]{32}"),
    ("Cloudflare", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{32,}"),
    ("Databricks", r"dapi[0-9a-f]{32}(?:-[0-9])?"),
    ("npm", r"npm_[A-Za-z0-9]{30,}"),
    ("PyPI", r"pypi-[A-Za-z0-9_-]{40,}"),
    ("Docker", r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}"),
    ("DigitalOcean", r"do[opr]_v1_[0-9a-f]{40,}"),
    ("RubyGems", r"rubygems_[0-9a-f]{40,}"),
    ("Grafana", r"gl(?:sa|c)_[A-Za-z0-9_=+/-]{30,}"),
    (
        "Vault, Terraform",
        r"hv[bs]\.[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}",
    ),
    ("Sentry", r"sntry[su]_[A-Za-z0-9_=+/-]{30,}"),
    ("New Relic", r"NRAK-[A-Z0-9]{20,}"),
    ("Atlassian", r"AT[AC]TT3[A-Za-z0-9_=-]{30,}"),
    ("Linear, Notion", r"lin_api_[A-Za-z0-9]{30,}|ntn_[A-Za-z0-9]{30,}"),
    ("Shopify", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    ("Pulumi, Prefect", r"pul-[0-9a-f]{40}|pn[ub]_[A-Za-z0-9]{36}"),
    ("1Password", r"ops_eyJ[A-Za-z0-9+/=_-]{40,}"),
    ("age", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    ("OpenShift", r"sha256~[A-Za-z0-9_-]{43}"),
    ("Postman", r"PMAK-[A-Fa-f0-9]{24}-[A-Fa-f0-9]{34}"),
    ("Doppler", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{40,}"),
    ("Tailscale", r"tskey-[a-z]+-[A-Za-z0-9-]{16,}"),
    ("Fly.io", r"fo1_[A-Za-z0-9_-]{43}|fm[12][ar]?_[A-Za-z0-9+/=]{90,}"),
    ("Heroku", r"HRKU-[A-Za-z0-9_-]{36,}"),
    ("Airtable", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    ("Dynatrace", r"dt0[a-z][0-9]{2}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}"),
    ("PlanetScale", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9=._-]{32,}"),
    ("Sourcegraph", r"sgp_(?:[A-Fa-f0-9]{16}_|local_)?[A-Fa-f0-9]{40}"),
    ("ReadMe, Typeform", r"rdme_[a-z0-9]{70}|tfp_[A-Za-z0-9_.=-]{59}"),
    ("Brevo", r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    ("webhooks' signatures", r"whsec_[A-Za-z0-9+/=]{20,}"),
    ("Square", r"sq0[a-z]{3}-[A-Za-z0-9_\\-]{22,}"),
    ("JFrog", r"AKC[A-Za-z0-9]{10,}|AP[0-9A-F][A-Za-z0-9]{22,}|cmVmd[A-Za-z0-9]{59}"),
    ("SendGrid", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    ("Telegram", r"[0-9]{8,10}:[A-Za-z0-9_-]{35}"),
    ("Discord", r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
    ("JWT, JWE", r"eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,4}"),
    ("JSON in base64, as Neptune's", r"eyJ[A-Za-z0-9+/_-]{60,}={0,2}"),
    ("Twilio", r"(?:AC|SK)[a-z0-9]{32}\b"),
    ("Mailgun, Mailchimp", r"(?:key-[0-9a-f]{32}|[0-9a-z]{32}-us[0-9]{1,2})\b"),
)
"""Keys and tokens that a prefix or form of their issuer identifies, by issuer."""
