"""The part of S3 that is read: GetObject by ranges and ListObjectsV2, as a session of the hostile server. Signatures are computed again by
botocore, the library of AWS, and compared."""
import hashlib, re, urllib.parse
from xml.sax.saxutils import escape

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from hostile_server import SECRET, Session

KEY = "AKIDEXAMPLE"


def signature_is_right(url, headers, keys, region):
    """`keys`: key -> (secret, session token or None)."""
    found = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=(\S+?)/(\d{8})/(\S+?)/s3/aws4_request, SignedHeaders=(\S+), Signature=([0-9a-f]{64})",
                         headers.get("Authorization", ""))
    if not found:
        return False
    key, day, signed_region, names, signature = found.groups()
    if key not in keys or signed_region != region or headers["x-amz-content-sha256"] != hashlib.sha256(b"").hexdigest():
        return False
    secret, token = keys[key]
    if headers.get("x-amz-security-token") != token or not headers["x-amz-date"].startswith(day):
        return False
    signed = names.split(";")
    if not {"host", "x-amz-date", "x-amz-content-sha256"} <= set(signed) or (token and "x-amz-security-token" not in signed):
        return False
    request = AWSRequest("GET", url, headers={name: headers[name] for name in signed})
    request.context["timestamp"] = headers["x-amz-date"]
    signer = S3SigV4Auth(Credentials(key, secret, token), "s3", region)
    return signer.signature(signer.string_to_sign(request, signer.canonical_request(request)), request) == signature


class Bucket(Session):
    """Session "NAME": s3://NAME/... . `keys` None: public. `bad`: what is wrong with its listings."""

    def __init__(self, files, keys=None, region="us-east-1", page=3, bad=None, **more):
        super().__init__({urllib.parse.quote(name, safe="/-._~"): content for name, content in files.items()}, **more)
        self.objects, self.keys, self.region, self.page, self.bad = dict(files), keys, region, page, bad
        self.listed = 0

    def route(self, handler, file, query):
        if handler.server.role != "origin":
            if "Authorization" in handler.headers:
                handler.answer(400, b"another host received a signature")
            return "Authorization" in handler.headers
        url = f"https://{handler.headers['Host']}{handler.path}"
        if self.keys is None and "Authorization" in handler.headers:
            handler.answer(400, b"a public bucket received a signature")
            return True
        if self.keys is not None and not signature_is_right(url, handler.headers, self.keys, self.region):
            handler.answer(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
            return True
        fields = urllib.parse.parse_qs(query, keep_blank_values=True)
        if fields.get("list-type") != ["2"]:
            return False
        assert fields["encoding-type"] == ["url"] and file == ""
        self.list_objects(handler, fields["prefix"][0], fields.get("continuation-token", [""])[0])
        return True

    def list_objects(self, handler, prefix, token):
        self.listed += 1
        if self.spoils_listing(handler):
            return
        names = sorted((name for name in self.objects if name.startswith(prefix)), key=str.encode)
        begin = int(token.removeprefix("t+/=")) if token else 0
        page = names[begin : begin + self.page]
        more = begin + len(page) < len(names)
        lines = ['<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><!-- a page -->',
                 f"<Name>x</Name><Prefix>{urllib.parse.quote_plus(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount><Delimiter/>",
                 f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"]
        if more or self.bad == "endless":
            following = 0 if self.bad == "endless" else begin + len(page)
            lines.append(f"<NextContinuationToken>t+/={following}</NextContinuationToken>")
        for name in page:
            content = self.objects[name]
            tag = hashlib.md5(content).hexdigest()
            if self.bad == "etag":
                tag = "0" * 32
            size = len(content) + (self.bad == "size")
            key = urllib.parse.quote_plus(("outside/" if self.bad == "outside" else "") + name, safe="/*")
            if self.bad == "nul":
                key += "%00x"
            lines.append(f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>{tag if self.bad == 'bare etag' else f'&quot;{tag}&#34;'}</ETag>"
                         f"<Size>{size}</Size><Owner><ID>7</ID><DisplayName>a &amp; b</DisplayName></Owner><StorageClass>STANDARD</StorageClass></Contents>")
        lines.append("<EncodingType>url</EncodingType></ListBucketResult>")
        body = "".join(lines)
        if self.bad == "endless":
            body = body.replace("<IsTruncated>false", "<IsTruncated>true")
        if self.bad == "cut xml":
            body = body[:-30]
        if self.bad == "entity":
            body = '<!DOCTYPE a [<!ENTITY b "c">]>' + body
        if self.bad == "deep":
            body = "<ListBucketResult>" * 100000
        if self.bad == "html":
            body = "<html>log in</html>"
        handler.answer(200, body.encode(), Content_Type="text/html" if self.bad == "html" else "application/xml")
