"""What tests run in a sandbox: each call makes one attempt and says in a few words how it ended."""
import builtins, contextlib, json, os, re, socket, ssl, struct, time

world = '/root/world.pem'
wait = float(os.environ.get('PROBE_WAIT', '15'))


def print(*parts):
    """One line, whatever it is."""
    builtins.print(re.sub(r'\r?\n|[\x00-\x1f]', '|', ' '.join(str(part) for part in parts)), flush=True)


def words(error):
    if isinstance(error, ssl.SSLCertVerificationError):
        return 'certificate: ' + error.verify_message
    if isinstance(error, ssl.SSLEOFError) or isinstance(error, EOFError):
        return 'closed'
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace('_', ' ')
    if isinstance(error, socket.gaierror):
        return 'no such name'
    if isinstance(error, (socket.timeout, TimeoutError)):
        return 'timeout'
    if isinstance(error, (ConnectionResetError, BrokenPipeError)):
        return 'reset'
    if isinstance(error, ConnectionRefusedError):
        return 'refused'
    if isinstance(error, OSError):
        return 'unreachable' if error.errno in (101, 113) else os.strerror(error.errno or 0).lower()
    raise error


def attempt(action):
    try:
        return action()
    except (OSError, EOFError) as error:
        return words(error)


def drain(connection, idle=1.0):
    """What comes until the other side ends, or is quiet. One that says that it will close is waited for."""
    got = b''
    connection.settimeout(wait)
    while len(got) < 1 << 20:
        try:
            data = connection.recv(65536)
        except (socket.timeout, TimeoutError):
            return got.decode('latin1') or 'silent'
        except OSError as error:
            return got.decode('latin1') or words(error)
        if not data:
            break
        got += data
        connection.settimeout(wait if b'connection: close' in got.lower() else idle)
    return got.decode('latin1') or 'closed'


def tcp(host, port, data=b'', source=None, idle=1.0):
    """Connects, sends, and returns what comes back, or how it ended."""
    def action():
        with socket.create_connection((host, port), wait, source) as connection:
            if data:
                connection.sendall(data)
            return drain(connection, idle)
    return attempt(action)


def context(alpn=None, ca=world, verifies=True):
    made = ssl.create_default_context(cafile=ca)
    if not verifies:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if alpn:
        made.set_alpn_protocols(alpn)
    return made


def tls(host, port=443, sni='', data=b'', at=None, **options):
    """Like `tcp`, within TLS to `sni` (None: named to nobody) with the root of the world, or those of the system (`ca=None`)."""
    name = host if sni == '' else sni
    def action():
        made = context(verifies=name is not None and options.pop('verifies', True), **options)
        with socket.create_connection((at or host, port), wait) as plain:
            with made.wrap_socket(plain, server_hostname=name) as connection:
                if data:
                    connection.sendall(data)
                return drain(connection)
    return attempt(action)


def issuer(host, port=443, sni='', at=None):
    """Who has signed the certificate that a name is shown: the world, or somebody else."""
    name = host if sni == '' else sni
    def action():
        with socket.create_connection((at or host, port), wait) as plain:
            with context(verifies=False).wrap_socket(plain, server_hostname=name) as connection:
                return 'world' if b'Atoll test world' in connection.getpeercert(True) else 'another'
    return attempt(action)


def udp(host, port, data=b'ping'):
    def action():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(2)
            connection.connect((host, port))
            connection.send(data)
            return connection.recv(65536).decode('latin1')
    return attempt(action)


codes = {1: 'form error', 2: 'failure', 3: 'no such name', 4: 'not implemented', 5: 'refused'}


def query(name, kind=1):
    labels = b''.join(bytes([len(label)]) + label.encode() for label in name.split('.'))
    return struct.pack('>6H', 7, 256, 1, 0, 0, 0) + labels + b'\0' + struct.pack('>2H', kind, 1)


def told(answer):
    """The code of an answer, or how many records it has."""
    code, count = answer[3] & 15, struct.unpack('>H', answer[6:8])[0]
    return codes.get(code, str(code)) if code else '%d records' % count


def server():
    return re.search(r'^nameserver (\S+)', open('/etc/resolv.conf').read(), re.M).group(1)


def dns(name, kind=1, at=None, over='udp', port=53):
    def action():
        if over == 'udp':
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
                connection.settimeout(5)
                connection.connect((at or server(), port))
                connection.send(query(name, kind))
                return told(connection.recv(65536))
        with socket.create_connection((at or server(), port), wait) as connection:
            asked = query(name, kind)
            connection.sendall(struct.pack('>H', len(asked)) + asked)
            answer = drain(connection, 1).encode('latin1')
            return told(answer[2:]) if len(answer) > 8 else answer.decode()
    return attempt(action)


def lookup(name):
    return attempt(lambda: ' '.join(sorted({each[4][0] for each in socket.getaddrinfo(name, 443, type=socket.SOCK_STREAM)})))


@contextlib.contextmanager
def hosts(address, name):
    """A name has this address for programs here, by /etc/hosts, or by itself where that cannot be written."""
    try:
        before = open('/etc/hosts').read()
        open('/etc/hosts', 'a').write('%s %s\n' % (address, name))
        yield
        open('/etc/hosts', 'w').write(before)
    except PermissionError:
        ask = socket.getaddrinfo
        socket.getaddrinfo = lambda host, *more, **others: ask(address if host == name else host, *more, **others)
        yield
        socket.getaddrinfo = ask


def request(host, path='/', method='GET', headers='', body='', version='HTTP/1.1', name=None):
    """The bytes of one request, closed behind it."""
    length = 'Content-Length: %d\r\n' % len(body) if body else ''
    text = '%s %s %s\r\nHost: %s\r\n%s%sConnection: close\r\n\r\n%s' % (method, path, version, host if name is None else name, headers, length, body)
    return text.encode('latin1')


def connect(target, name=None, at=('169.254.169.253', 3128), data=b'', headers=''):
    """Through the explicit proxy: what it says to CONNECT, and what came through it."""
    def action():
        with socket.create_connection(at, wait) as connection:
            connection.sendall(('CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n' % (target, name or target, headers)).encode('latin1'))
            head = connection.recv(65536).decode('latin1')
            if not head.startswith('HTTP/1.1 200') or not data:
                return head
            connection.sendall(data)
            return head.split('\r\n')[0] + ' | ' + drain(connection)
    return attempt(action)


def whole(answer):
    """The body of an answer as its length or its chunks say, before any decompression."""
    head, _, rest = answer.encode('latin1').partition(b'\r\n\r\n')
    if b'transfer-encoding: chunked' not in head.lower():
        return rest
    body = b''
    while rest:
        size, _, rest = rest.partition(b'\r\n')
        count = int(size.split(b';')[0] or b'0', 16)
        if count == 0:
            break
        body, rest = body + rest[:count], rest[count + 2:]
    return body


def body(answer):
    return whole(answer).decode('latin1') if answer.startswith('HTTP/') else answer


def status(answer):
    found = re.match(r'HTTP/1\.[01] (\d+)', answer)
    return found.group(1) if found else answer[:80]


def hello(names, more=b'', padding=0):
    """The bytes of a ClientHello for these server names, as no library sends it, with more extensions."""
    def vector(data, size):
        return len(data).to_bytes(size, 'big') + data
    def extension(kind, data):
        return struct.pack('>H', kind) + vector(data, 2)
    listed = b''.join(b'\0' + vector(name.encode(), 2) for name in names)
    extensions = extension(0, vector(listed, 2)) if names else b''
    extensions += extension(10, vector(b'\0\x1d\0\x17', 2)) + extension(13, vector(b'\4\3\x08\4\4\1', 2))
    extensions += extension(43, vector(b'\3\4', 1)) + extension(51, vector(b'\0\x1d' + vector(os.urandom(32), 2), 2)) + more
    if padding:
        extensions += extension(21, bytes(padding))
    body = b'\3\3' + os.urandom(32) + vector(os.urandom(32), 1) + vector(b'\x13\1\x13\2', 2) + vector(b'\0', 1) + vector(extensions, 2)
    shake = b'\1' + vector(body, 3)
    records = [shake[at:at + 16000] for at in range(0, len(shake), 16000)]
    return b''.join(b'\x16\3\1' + vector(record, 2) for record in records)


def records(data, size):
    """The same handshake in TLS records of this size."""
    shake, got = data[5:], b''
    for at in range(0, len(shake), size):
        piece = shake[at:at + size]
        got += b'\x16\3\1' + len(piece).to_bytes(2, 'big') + piece
    return got


def greet(host, data, port=443, at=None, pause=0):
    """Sends the beginning of a handshake, in one piece or byte by byte, and names what comes back."""
    def action():
        with socket.create_connection((at or host, port), wait) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in [data[at:at + 1] for at in range(len(data))] if pause else [data]:
                connection.sendall(piece)
                time.sleep(pause)
            answer = drain(connection, 1).encode('latin1')
            if answer[:1] == b'\x15' and len(answer) >= 7:
                return 'alert %d' % answer[6]
            return 'handshake' if answer[:1] == b'\x16' else answer[:200].decode('latin1')
    return attempt(action)


def through(target, sni, data, ca=world, at=('169.254.169.253', 3128)):
    """TLS to a name within CONNECT to a target."""
    def action():
        with socket.create_connection(at, wait) as plain:
            plain.sendall(('CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n' % (target, target)).encode())
            head = plain.recv(65536).decode('latin1')
            if not head.startswith('HTTP/1.1 200'):
                return head.split('\r\n')[0]
            with context(ca=ca).wrap_socket(plain, server_hostname=sni) as connection:
                connection.sendall(data)
                return drain(connection)
    return attempt(action)
