"""Runs of shardtool on the hostile server: an environment without credentials and proxies of this machine, and no secret in the output."""
import os, subprocess, sys
from hostile_server import SECRET, Web

TOOL = os.path.join(os.environ["BIN"], "shardtool")
web = None


def start():
    global web
    os.mkdir("authority")
    os.mkdir("home")
    web = Web(os.path.abspath("authority"))
    return web


def environment(**more):
    foreign = ("AWS_", "HF_", "HUGGING")
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy") and not name.startswith(foreign)}
    return {**clean, "CURL_CA_BUNDLE": web.authority, "TZ": "UTC", "HOME": os.path.abspath("home"), **more}


def tool(*arguments, code=0, **more):
    done = subprocess.run([TOOL, *arguments], capture_output=True, timeout=120, env=environment(**more))
    assert code is None or done.returncode == code, (arguments, done.returncode, done.stderr.decode())
    assert SECRET.encode() not in done.stderr + done.stdout, done.stderr
    return done


def peak(*arguments):
    """MiB that a run takes at most. In a process of its own, which has no other children."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True); " \
           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", code, TOOL, *arguments], capture_output=True, env=environment(), check=True)
    return int(done.stdout) / 1024


def has_secret(folder, *secrets):
    """The first file of a folder that holds one of the secrets."""
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                content = open(os.path.join(root, name), "rb").read()
            except FileNotFoundError:  # of a run that goes on: it was renamed, and is read under its last name
                continue
            if any(secret.encode() in content for secret in secrets):
                return os.path.join(root, name)
    return None
