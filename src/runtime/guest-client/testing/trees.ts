/** Programs for `python3 -c` that make a folder of everything that a file system has, and tell what is in one: a line an entry. */

export const makeTree = String.raw`
import os, struct
os.makedirs('a/deep/empty'); os.mkdir('sticky'); os.mkdir('new\nline'); os.mkdir(b'\xff\xfe')
def write(name, content=b'', mode=0o644):
    with open(name, 'wb') as file: file.write(content)
    os.chmod(name, mode)
write('new\nline/file', b'x'); write(b'odd\xff', b'1'); write(b'\xff\xfe/ \t"', b'2', 0o400); write('a/program', b'program')
write('none', b'', 0); write('Ünï', b'3'); write('...', b'4'); write('-rf', b'5'); write('n' * 255, b'6'); write('a\\b*?', b'7')
os.link('a/program', 'a/again'); os.link('a/program', 'zz')
os.symlink('../../outside', 'a/link'); os.symlink('a' * 4000, 'long'); os.symlink(b'\xff\n', 'odd-link'); os.symlink('/', 'root')
os.link('long', 'long-again', follow_symlinks=False)
os.mkfifo('pipe', 0o640)
with open('sparse', 'wb') as file: file.truncate(3 << 20)
with open('sparse', 'ab') as file: file.write(b'end')
write('big', os.urandom(300001))
for name in ['a/link', 'pipe', 'a/deep', 'new\nline/file']: os.lchown(name, 4242, 4243)
os.setxattr('a/program', 'user.note', b'a=b\n\0\xff'); os.setxattr('sticky', 'user.folder', b'x' * 3000)
write('cap', b'cap', 0o755)
os.setxattr('cap', 'security.capability', struct.pack('<IIIII', 0x02000001, 1 << 13, 0, 0, 0))
os.chmod('a/program', 0o4755); os.chmod('sticky', 0o1777); os.chmod('a/deep/empty', 0); os.chmod('a/deep', 0o2750); os.chmod('.', 0o751)
for top, folders, files in os.walk('.', topdown=False):
    for name in folders + files: os.utime(os.path.join(top, name), (10**9, 10**9 + len(name)), follow_symlinks=False)
os.utime('.', (10**9, 10**9))
`

export const describeTree = String.raw`
import os, hashlib, stat
inodes = {}
def tell(folder, name):
    path = os.path.join(folder, name)
    status = os.lstat(path)
    words = [repr(name), oct(status.st_mode), status.st_uid, status.st_gid, int(status.st_mtime)]
    if stat.S_ISREG(status.st_mode):
        with open(path, 'rb') as file: words.append(hashlib.sha256(file.read()).hexdigest())
        words.append('#%d' % inodes.setdefault(status.st_ino, len(inodes)))
    if stat.S_ISLNK(status.st_mode): words.append(os.readlink(path))
    else: words += [(key, os.getxattr(path, key)) for key in sorted(os.listxattr(path)) if key.startswith(('user.', 'security.cap'))]
    print('/'.join(repr(part) for part in [folder]), *words)
tell(b'.', b'')
for top, folders, files in os.walk(b'.'):
    folders.sort()
    for name in sorted(folders + files): tell(top, name)
`
