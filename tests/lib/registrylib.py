"""A registry on loopback (Debian's docker-registry), and images to put into it.

Images are made here byte by byte, and pushed over the registry's HTTP interface, so that a test
can push what no tool would: foreign architectures, lists that lead nowhere, layers that are no
archives. Standard library only.
"""
import base64
import contextlib
import gzip
import hashlib
import http.client
import io
import json
import os
import shutil
import socket
import ssl
import subprocess
import tarfile
import tempfile
import time

DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"

PASSWORD = "s3cret"
# ... by bcrypt, the only kind that docker-registry knows, and Python does not
HASHED = "$2y$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK"


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def tar_of(entries):
    """A tar from a list of (name, kind, ...): ("f", bytes, mode, uid, gid), ("d", mode, uid, gid),
    ("l", target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for name, kind, *rest in entries:
            ti = tarfile.TarInfo(name)
            body = None
            if kind == "f":
                body = rest[0]
                ti.size = len(body)
                ti.mode = rest[1] if len(rest) > 1 else 0o644
                ti.uid, ti.gid = (rest[2], rest[3]) if len(rest) > 3 else (0, 0)
            elif kind == "d":
                ti.type = tarfile.DIRTYPE
                ti.mode = rest[0] if rest else 0o755
                ti.uid, ti.gid = (rest[1], rest[2]) if len(rest) > 2 else (0, 0)
            else:
                ti.type = tarfile.SYMTYPE
                ti.linkname = rest[0]
            t.addfile(ti, io.BytesIO(body) if body is not None else None)
    return out.getvalue()


class Image:
    """Blobs of one image for one architecture; docker=True: Docker's media types."""

    def __init__(self, layers, config=None, arch="amd64", docker=True, os_name="linux"):
        self.blobs = {}
        self.docker = docker
        self.arch = arch
        self.os_name = os_name
        descs, diffs = [], []
        for raw in layers:
            packed = gzip.compress(raw, mtime=0, compresslevel=1)
            descs.append(self._put(packed, DOCKER_LAYER if docker else OCI_LAYER))
            diffs.append(digest(raw))
        body = {"architecture": arch, "os": os_name, "config": config or {},
                "rootfs": {"type": "layers", "diff_ids": diffs}}
        cfg = self._put(json.dumps(body).encode(), DOCKER_CONFIG if docker else OCI_CONFIG)
        self.media = DOCKER_MANIFEST if docker else OCI_MANIFEST
        self.manifest = json.dumps({"schemaVersion": 2, "mediaType": self.media,
                                    "config": cfg, "layers": descs}).encode()
        self.digest = digest(self.manifest)
        self.layers = [d["digest"] for d in descs]

    def _put(self, data, media):
        d = digest(data)
        self.blobs[d] = data
        return {"mediaType": media, "size": len(data), "digest": d}

    def descriptor(self):
        return {"mediaType": self.media, "size": len(self.manifest), "digest": self.digest,
                "platform": {"architecture": self.arch, "os": self.os_name}}

    def layout(self, path, name="x"):
        """Write it as an OCI image layout; docker=False images only."""
        blobs = os.path.join(path, "blobs", "sha256")
        os.makedirs(blobs)
        for d, data in list(self.blobs.items()) + [(self.digest, self.manifest)]:
            with open(os.path.join(blobs, d[7:]), "wb") as f:
                f.write(data)
        with open(os.path.join(path, "oci-layout"), "w") as f:
            f.write('{"imageLayoutVersion":"1.0.0"}')
        one = dict(self.descriptor(), annotations={"org.opencontainers.image.ref.name": name})
        with open(os.path.join(path, "index.json"), "w") as f:
            json.dump({"schemaVersion": 2, "manifests": [one]}, f)


def index_of(images, docker=True):
    body = json.dumps({"schemaVersion": 2, "mediaType": DOCKER_LIST if docker else OCI_INDEX,
                       "manifests": [i.descriptor() for i in images]}).encode()
    return body, DOCKER_LIST if docker else OCI_INDEX


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def program():
    """docker-registry, or None. Installing Debian's package starts a service on port 5000 of
    this machine, so it is fetched and unpacked into a cache instead."""
    found = shutil.which("docker-registry")
    top = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cloche-tests")
    cached = os.path.join(top, "docker-registry")
    if found or os.path.exists(cached):
        return found or cached
    os.makedirs(top, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=top) as d:
        for argv in (["apt-get", "download", "-q", "docker-registry"], ["sh", "-c", "dpkg-deb -x *.deb ."]):
            r = subprocess.run(argv, cwd=d, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if r.returncode:
                print(r.stderr.decode(errors="replace")[-300:])
                return None
        os.rename(os.path.join(d, "usr/bin/docker-registry"), cached)
    return cached


class Registry:
    """docker-registry with basic auth (and TLS, when asked for) on a port of its own.

    Files lie in @root; stop() and start() again keep what was pushed and the port.
    """

    def __init__(self, root, tls=False, user="ada"):
        self.root, self.tls, self.user, self.password = root, tls, user, PASSWORD
        os.makedirs(root, exist_ok=True)
        self.port = free_port()
        self.host = f"localhost:{self.port}"
        self.proc = None
        conf = {
            "version": 0.1, "log": {"level": "error", "accesslog": {"disabled": True}},
            "storage": {"filesystem": {"rootdirectory": os.path.join(root, "data")},
                        "delete": {"enabled": True}},
            "http": {"addr": f"127.0.0.1:{self.port}", "secret": "a secret of the test"},
        }
        if user:
            with open(os.path.join(root, "htpasswd"), "w") as f:
                f.write(f"{user}:{HASHED}\n")
            conf["auth"] = {"htpasswd": {"realm": "test", "path": os.path.join(root, "htpasswd")}}
        if tls:
            self.make_certificate()
            conf["http"]["tls"] = {"certificate": os.path.join(root, "cert.pem"),
                                   "key": os.path.join(root, "key.pem")}
        with open(os.path.join(root, "config.yml"), "w") as f:
            json.dump(conf, f)  # JSON is YAML

    def make_certificate(self):
        """A CA of the test, and the registry's certificate by it."""
        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=self.root)
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out",
                "ca.pem", "-days", "30", "-subj", "/CN=test CA",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "req.pem",
                "-subj", "/CN=localhost")
        with open(os.path.join(self.root, "ext"), "w") as f:
            f.write("subjectAltName=DNS:localhost,IP:127.0.0.1\nkeyUsage=critical,digitalSignature\n"
                    "extendedKeyUsage=serverAuth\nauthorityKeyIdentifier=keyid\n")
        openssl("x509", "-req", "-in", "req.pem", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-out", "cert.pem", "-days", "30", "-extfile", "ext")

    def start(self):
        self.log = open(os.path.join(self.root, "log"), "ab")
        self.proc = subprocess.Popen([program(), "serve",
                                      os.path.join(self.root, "config.yml")],
                                     stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                     env={"PATH": "/usr/bin:/bin", "OTEL_TRACES_EXPORTER": "none"})
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            if self.proc.poll() is not None:
                break
            time.sleep(0.05)
        with open(os.path.join(self.root, "log")) as f:
            raise AssertionError("docker-registry does not start: " + f.read()[-800:])

    def stop(self):
        if self.proc:
            self.proc.kill()
            self.proc.wait()
            self.log.close()
            self.proc = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()

    # ---- pushing ------------------------------------------------------------

    def _ask(self, method, path, body=None, headers=()):
        if self.tls:
            ctx = ssl.create_default_context(cafile=os.path.join(self.root, "ca.pem"))
            c = http.client.HTTPSConnection("localhost", self.port, context=ctx, timeout=60)
        else:
            c = http.client.HTTPConnection("localhost", self.port, timeout=60)
        h = dict(headers)
        if self.user:
            token = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            h["Authorization"] = "Basic " + token
        c.request(method, path, body=body, headers=h)
        r = c.getresponse()
        data = r.read()
        c.close()
        return r, data

    def push_blob(self, name, data):
        r, _ = self._ask("POST", f"/v2/{name}/blobs/uploads/")
        assert r.status == 202, r.status
        where = r.headers["Location"].split("/v2/", 1)[1]
        sep = "&" if "?" in where else "?"
        r, text = self._ask("PUT", f"/v2/{where}{sep}digest={digest(data)}", data,
                            {"Content-Type": "application/octet-stream"})
        assert r.status == 201, (r.status, text)

    def push_manifest(self, name, tag, body, media):
        r, text = self._ask("PUT", f"/v2/{name}/manifests/{tag}", body, {"Content-Type": media})
        assert r.status == 201, (r.status, text)

    def push(self, name, tag, *images, docker=True):
        """One image, or a list of several. Return: the digest that the tag has."""
        for i in images:
            for data in i.blobs.values():
                self.push_blob(name, data)
        if len(images) == 1:
            self.push_manifest(name, tag, images[0].manifest, images[0].media)
            return images[0].digest
        for i in images:
            self.push_manifest(name, i.digest, i.manifest, i.media)
        body, media = index_of(images, docker)
        self.push_manifest(name, tag, body, media)
        return digest(body)

    def blob_file(self, d):
        """Where the registry keeps a blob: a test may damage it."""
        return os.path.join(self.root, "data", "docker", "registry", "v2", "blobs", "sha256",
                            d[7:9], d[7:], "data")

    # ---- the user's side ----------------------------------------------------

    def trust(self, home, login=True, password=None, insecure=False):
        """Files of a user's home for skopeo: login, CA, or registries.conf for plain http."""
        conf = os.path.join(home, ".config", "containers")
        os.makedirs(conf, exist_ok=True)
        if login:
            token = base64.b64encode(
                f"{self.user}:{password or self.password}".encode()).decode()
            os.makedirs(os.path.join(home, ".docker"), exist_ok=True)
            with open(os.path.join(home, ".docker", "config.json"), "w") as f:
                json.dump({"auths": {self.host: {"auth": token}}}, f)
        if insecure:
            with open(os.path.join(conf, "registries.conf"), "w") as f:
                f.write(f'[[registry]]\nlocation = "{self.host}"\ninsecure = true\n')
        if self.tls:
            certs = os.path.join(conf, "certs.d", self.host)
            os.makedirs(certs, exist_ok=True)
            shutil.copy(os.path.join(self.root, "ca.pem"), os.path.join(certs, "ca.crt"))
