"""A hub of datasets as a session of the hostile server, by the paths and fields of the API of huggingface.co: /api/datasets/OWNER/NAME/revision/REV
with "sha"; /api/datasets/OWNER/NAME/tree/REV/PATH?recursive=true with pages linked by Link: rel="next"; /datasets/OWNER/NAME/resolve/REV/PATH,
which redirects to another host for files in LFS and serves the small ones in git; X-Repo-Commit, X-Linked-Etag, X-Linked-Size."""
import hashlib, json, urllib.parse
from hostile_server import SECRET, Session


class Hub(Session):
    """The repository is OWNER/NAME `repository`. Files of more than `lfs_bytes` are in LFS. `bad`: what is wrong with listings or headers."""

    def __init__(self, repository, files, token=None, page=3, lfs_bytes=64, bad=None, **more):
        super().__init__({}, **more)
        self.repository, self.token, self.page, self.lfs_bytes, self.bad, self.bad_from = repository, token, page, lfs_bytes, bad, 1
        self.revisions = {}
        self.resolved = 0
        self.commit(files)

    def commit(self, files):
        """Moves the branch main."""
        self.main = hashlib.sha1(repr(sorted((name, hashlib.sha1(content).digest()) for name, content in files.items())).encode()).hexdigest()
        self.revisions[self.main] = dict(files)
        for name, content in files.items():
            if len(content) > self.lfs_bytes:
                self.files["lfs/" + hashlib.sha256(content).hexdigest()] = content
            else:
                self.files[f"git/{self.main}/{urllib.parse.quote(name)}"] = content

    def commit_of(self, revision):
        revision = urllib.parse.unquote(revision)
        return self.main if revision in ("main", "refs/convert/parquet") else revision if revision in self.revisions else None

    def route(self, handler, file, query):
        if handler.server.role != "origin":
            if "Authorization" in handler.headers:
                handler.answer(400, b"another host received the token")
                return True
            return False
        if self.token and handler.headers.get("Authorization") != "Bearer " + self.token:
            handler.answer(401, b"Invalid username or password.")
            return True
        parts = file.split("/", 5)
        if file.startswith("api/datasets/" + self.repository + "/"):
            kind, _, rest = file.removeprefix("api/datasets/" + self.repository + "/").partition("/")
            revision, _, path = rest.partition("/")
            commit = self.commit_of(revision)
            if not commit:
                handler.answer(404, b'{"error":"Revision Not Found"}')
            elif kind == "revision":
                handler.answer(200, json.dumps({"id": self.repository, "sha": "x" if self.bad == "sha" else commit}).encode())
            else:
                self.send_tree(handler, commit, urllib.parse.unquote(path), query)
            return True
        start = f"datasets/{self.repository}/resolve/"
        if not file.startswith(start):
            return False
        revision, _, path = file.removeprefix(start).partition("/")
        commit, path = self.commit_of(revision), urllib.parse.unquote(path)
        content = self.revisions.get(commit, {}).get(path)
        if content is None:
            handler.answer(404, b"Entry not found", X_Error_Code="EntryNotFound")
            return True
        self.send_file(handler, commit, path, content)
        return True

    def send_file(self, handler, commit, path, content):
        self.resolved += 1
        bad = self.bad if self.resolved >= self.bad_from else None
        shown = "f" * 40 if bad == "commit" else commit
        name = handler.path.lstrip("/").partition("/")[0]
        if len(content) <= self.lfs_bytes:
            self.fields = {"X_Repo_Commit": shown}
            return handler.misbehave(self, name, f"git/{commit}/{urllib.parse.quote(path)}", None)
        sha = hashlib.sha256(content).hexdigest()
        place = handler.server.web.url("cdn", f"{name}/lfs/{sha}") + f"?Signature={SECRET}"
        handler.answer(302, b"Found", Location=place, X_Repo_Commit=None if bad == "no commit" else shown,
                       X_Linked_Etag='"' + ("0" * 64 if bad == "linked etag" else sha) + '"', X_Linked_Size=str(len(content) + (bad == "linked size")))

    def send_tree(self, handler, commit, folder, query):
        fields = urllib.parse.parse_qs(query)
        assert fields["recursive"] == ["true"]
        if self.spoils_listing(handler):
            return
        inside = folder + "/" if folder else ""
        files = self.revisions[commit]
        names = sorted(name for name in files if name.startswith(inside))
        if not names:
            return handler.answer(404, b'{"error":"not found"}')
        folders = sorted({name.rpartition("/")[0] for name in names} - {""})
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": path} for path in folders]
        for name in names:
            entry = {"type": "file", "oid": hashlib.sha1(b"blob %d\0" % len(files[name]) + files[name]).hexdigest(), "size": len(files[name]), "path": name}
            if len(files[name]) > self.lfs_bytes:
                entry["lfs"] = {"oid": hashlib.sha256(files[name]).hexdigest(), "size": len(files[name]), "pointerSize": 134}
                entry["xetHash"] = "0" * 64
            if self.bad == "hash" and "lfs" in entry:
                entry["lfs"]["oid"] = "1" * 64
            if self.bad == "size":
                entry["size"] += 1
            if self.bad == "outside":
                entry["path"] = "elsewhere/" + name
            if self.bad == "negative":
                entry["size"] = -1
            entries.append(entry)
        begin = int(fields.get("cursor", ["0"])[0])
        page, end = entries[begin : begin + self.page], begin + self.page
        link = None
        if end < len(entries) or self.bad == "endless":
            host = "cdn" if self.bad == "other host" else "origin"
            cursor = begin if self.bad == "endless" and begin else end
            link = f'<{handler.server.web.url(host)}{handler.path.partition("?")[0][1:]}?recursive=true&cursor={cursor}>; rel="next"'
        body = json.dumps(page).encode()
        if self.bad == "cut json":
            body = body[:-2]
        if self.bad == "object":
            body = b'{"error":"x"}'
        handler.answer(200, body, Link=link, Content_Type="application/json")
