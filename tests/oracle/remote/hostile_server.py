"""A web server that is hostile in a known way: two hosts over TLS, with certificates of a test authority, and one whose certificate
nobody has signed. A session is a folder of the server: /NAME/file. It serves ranges of its files, and does what its plan says."""
import hashlib, http.server, os, random, socket, socketserver, ssl, struct, subprocess, threading, time

# What a client must survive, and what must end it with this exit code from some request on.
SURVIVED = ["cut", "cut header", "stall", "429", "503", "500", "redirect", "chain", "expire", "drip", "short"]
FATAL = {"html": 65, "portal": 65, "gzip": 65, "swap": 65, "resize": 65, "wrong range": 65, "whole": 65, "long": 65, "always short": 65,
         "flip": 65, "forbidden": 77, "gone": 66, "dead": 74, "to http": 76, "to stranger": 76, "loop": 65}
SECRET = "hush-hush"  # of signatures and tokens: no program may print or keep it


def make_certificates(folder):
    """ca.pem, and server.pem of localhost and 127.0.0.1 that it has signed, and stranger.pem that signs itself."""

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    openssl(*new, "-subj", "/CN=test authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl(*new, "-subj", "/CN=localhost", "-addext", names, "-keyout", "stranger.key", "-out", "stranger.pem")
    openssl(*new, "-subj", "/CN=localhost", "-addext", names, "-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-keyout", "server.key", "-out", "server.pem")


class Session:
    """Files by name, and a plan: `survived` are faults of single requests, `fatal` begins at a request and stays."""

    def __init__(self, files, seed=0, survived=(), share=0.3, fatal=None, fatal_from=2, redirects=False, stall_s=3):
        self.files = files
        self.rng = random.Random(seed)
        self.survived, self.share = list(survived), share
        self.fatal, self.fatal_from, self.fatal_seen = fatal, fatal_from, False
        self.redirects, self.stall_s = redirects, stall_s
        self.requests, self.signature, self.uses = 0, 0, 0
        self.away = 0  # so many next requests are 503
        self.etag = None  # "...": of all files, whatever they hold
        self.fields = {}  # further ones of the origin's answers
        self.ranges = True  # else each answer is the whole file
        self.range_status = 206
        self.seen = []  # (host, path, headers)
        self.lock = threading.Lock()
        self.faults = {}  # of the requests for a block, by its end

    def next_fault(self, block):
        """None, or the fault of this request. A block has at most two that are survived, so that three tries are enough."""
        with self.lock:
            self.requests += 1
            if self.fatal and self.requests >= self.fatal_from:
                return self.fatal
            if self.away:
                self.away -= 1
                return "dead"
            if self.survived and self.faults.get(block, 0) < 2 and self.rng.random() < self.share:
                self.faults[block] = self.faults.get(block, 0) + 1
                return self.rng.choice(self.survived)
            return None

    def spoils_listing(self, handler):
        """Whether a page of a listing gets an answer that is survived in place of the page."""
        fault = self.next_fault("listing")
        if fault in ("503", "500", "429"):
            handler.answer(int(fault), b"later", Retry_After="0")
        elif fault in ("cut", "cut header"):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n[")
            handler.reset()
        else:
            return False
        return True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def reset(self):
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def answer(self, status, body=b"", **fields):
        self.send_response(status)
        fields.setdefault("Content_Length", str(len(body)))
        for name, value in fields.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def redirect(self, place):
        self.answer(302, b"moved", Location=place)

    def do_GET(self):
        try:
            self.serve()
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError, ValueError, OSError):
            self.close_connection = True

    def serve(self):
        path, _, query = self.path.partition("?")
        name, _, file = path.lstrip("/").partition("/")
        session = self.server.web.sessions[name]
        session.seen.append((self.server.role, self.path, dict(self.headers)))
        if hasattr(session, "route"):  # an API of its own
            if session.route(self, file, query):
                return
        if file not in session.files:
            return self.answer(404, b"no such file")
        fault = session.next_fault((self.headers["Range"] or "").partition("-")[2]) if file != "portal" else None
        if self.server.role == "origin" and fault in (None, "expire") and session.redirects:
            with session.lock:
                session.signature += 1
                signed = f"?signature={SECRET}-{session.signature}"
            return self.redirect(self.server.web.url("cdn", f"{name}/{file}") + signed)
        if self.server.role == "cdn" and session.redirects:
            with session.lock:
                session.uses += 1
                expired = not query or (fault == "expire" and session.uses > 1)
            if expired:
                return self.answer(403, b"expired")
        self.misbehave(session, name, file, fault)

    def misbehave(self, session, name, file, fault):
        content, web = session.files[file], self.server.web
        if file == "portal":
            return self.answer(200, content, Content_Type="text/html")
        session.fatal_seen |= fault is not None and fault == session.fatal
        etag = session.etag or '"' + hashlib.md5(content).hexdigest() + '"'
        size = len(content)
        if fault in ("429", "503", "500"):
            return self.answer(int(fault), b"later", Retry_After=None if fault == "500" else "0")
        if fault == "dead":
            return self.answer(503, b"later")
        if fault in ("redirect", "chain"):
            return self.redirect(web.url("cdn", f"{name}/{file}") + f"?signature={SECRET}-0")
        if fault == "to http":
            return self.redirect(f"http://127.0.0.1:{web.ports['cdn']}/{name}/{file}")
        if fault == "to stranger":
            return self.redirect(web.url("stranger", f"{name}/{file}"))
        if fault == "loop":
            return self.redirect(web.url("origin", f"{name}/{file}"))
        if fault in ("expire", "forbidden"):
            return self.answer(403, b"no")
        if fault == "gone":
            return self.answer(404, b"no")
        if fault == "html":
            return self.answer(200, b"<html>log in</html>", Content_Type="text/html")
        if fault == "portal":
            return self.redirect(web.url("cdn", f"{name}/portal"))
        if fault == "cut header":
            self.wfile.write(b"HTTP/1.1 206 Partial Content\r\nContent-Ra")
            return self.reset()
        if fault == "stall" and session.rng.random() < 0.5:
            time.sleep(session.stall_s)
            return self.reset()
        if fault == "swap":
            content, etag = content[::-1], '"another"'
        if fault == "resize":
            size += 1
        wanted = self.headers["Range"] if session.ranges and fault != "whole" else None
        begin, last = map(int, wanted.removeprefix("bytes=").split("-")) if wanted else (0, size - 1)
        if wanted and begin >= size:
            return self.answer(416, b"", Content_Range=f"bytes */{size}", **session.fields)
        last = min(last, size - 1)
        body = content[begin : last + 1]
        if fault == "flip" and len(body) > 1:
            place = session.rng.randrange(len(body))
            body = body[:place] + bytes([body[place] ^ 1 << session.rng.randrange(8)]) + body[place + 1 :]
        if fault == "wrong range":
            begin, last = begin + 1, last + 1
        fields = dict(ETag=etag, Content_Range=wanted and f"bytes {begin}-{last}/{size}", Content_Type="application/octet-stream")
        if self.server.role == "origin":
            fields |= session.fields
        if fault == "gzip":
            fields["Content_Encoding"] = "gzip"
        if fault == "long":
            body += b"more"
        if fault in ("short", "always short"):
            body = body[: len(body) // 2]
        status = session.range_status if wanted else 200
        if fault not in ("cut", "stall", "drip"):
            return self.answer(status, body, **fields)
        part = session.rng.randrange(len(body))
        self.answer(status, body[:part], **fields, Content_Length=str(len(body)))
        self.wfile.flush()
        if fault == "cut":
            return self.reset()
        if fault == "stall":
            time.sleep(session.stall_s)
            return self.reset()
        time.sleep(0.05)
        self.wfile.write(body[part:])


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def get_request(self):
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address

    def finish_request(self, request, address):
        try:
            if self.context:
                request = self.context.wrap_socket(request, server_side=True)
            super().finish_request(request, address)
        except (ssl.SSLError, OSError):
            pass

    def handle_error(self, request, address):
        pass


class Web:
    """The hosts: `origin` is localhost, `cdn` 127.0.0.1, `stranger` localhost with a certificate of its own, `plain` without TLS."""

    def __init__(self, folder):
        make_certificates(folder)
        self.authority = os.path.join(folder, "ca.pem")
        self.sessions, self.ports, self.servers = {}, {}, []
        for role, certificate in (("origin", "server"), ("cdn", "server"), ("stranger", "stranger"), ("plain", None)):
            server = Server(("127.0.0.1", 0), Handler)
            server.role, server.web, server.context = role, self, None
            if certificate:
                server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                server.context.load_cert_chain(os.path.join(folder, certificate + ".pem"), os.path.join(folder, certificate + ".key"))
            self.ports[role] = server.server_address[1]
            self.servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()

    def url(self, role, path=""):
        host = "127.0.0.1" if role in ("cdn", "plain") else "localhost"
        return f"{'http' if role == 'plain' else 'https'}://{host}:{self.ports[role]}/{path}"

    def add(self, name, session):
        self.sessions[name] = session
        return session

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()
