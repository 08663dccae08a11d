import type { Output, Process, Sandbox } from '../../../sdk/src/index.ts'
import { CliError } from '../exit-codes.ts'

/** An sshd whose connection is lost ends soon. */
const disconnectSeconds = 15
const firstLineMax = 1024
const errorCharactersMax = 2000
const missing = 69

/**
 * Serves one connection on standard input and output, after a line with the host key.
 *
 * - The host key is made once for each sandbox: a fork has the files of its origin, and another id. `ln` keeps the key that another connection
 *   has made meanwhile.
 * - `AuthorizedKeysCommand` is `echo`, so the client's key counts for this connection alone and no file has it.
 * - sshd gives a session an environment of its own. Variables of the sandbox and of its image are passed on by a file, since arguments are seen
 *   by every user. Those with line ends are left out, which the file cannot have.
 */
const serve = String.raw`umask 077
search=$PATH
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/lib/ssh
sshd=$(command -v sshd) && command -v ssh-keygen >/dev/null && echo=$(command -v /bin/echo) || exit ${missing}
key=/run/atoll-ssh/$1
mkdir -p /run/atoll-ssh && mkdir -p -m 755 /run/sshd || exit 1
if [ ! -s "$key" ]; then
  ssh-keygen -q -t ed25519 -N '' -C '' -f "$key.$$" || exit 1
  ln "$key.$$" "$key" 2>/dev/null
  rm -f "$key.$$" "$key.$$.pub"
fi
{
  printf 'SetEnv "PATH=%s"' "$search"
  for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
    case $name in PATH|HOME|USER|LOGNAME|SHELL|PWD|OLDPWD|SHLVL|TERM|_) continue ;; esac
    value=$(printenv "$name") && [ "$(printf '%s\n' "$value" | wc -l)" = 1 ] || continue
    printf ' "%s=%s"' "$name" "$(printf '%s' "$value" | sed 's/[\\"]/\\&/g')"
  done
  echo
} >"$key.config.$$" && mv "$key.config.$$" "$key.config" || exit 1
ssh-keygen -y -f "$key" || exit 1
umask 022
exec "$sshd" -i -e -f "$key.config" -h "$key" -o LogLevel=ERROR -o PidFile=none \
  -o AuthorizedKeysFile=none -o "AuthorizedKeysCommand=$echo $2" -o AuthorizedKeysCommandUser=root \
  -o PermitRootLogin=prohibit-password -o PasswordAuthentication=no -o KbdInteractiveAuthentication=no \
  -o 'AcceptEnv=LANG LC_* COLORTERM' -o 'Subsystem=sftp internal-sftp' -o PrintMotd=no -o PrintLastLog=no \
  -o ClientAliveInterval=60 -o MaxSessions=100`

/** An sshd in a sandbox. */
export interface SshServer {
  /** As `ssh-ed25519 AAAA…`. */
  hostKey: string
  remote: Process
  /** What came of its output with the host key. */
  first: Uint8Array
  /** The output after that. */
  output: AsyncIterator<Output>
}

/** Starts an sshd that takes one connection, of the owner of this public key. */
export async function startSshServer(sandbox: Sandbox, clientKey: string): Promise<SshServer> {
  const remote = await sandbox.spawn('sh', {
    args: ['-c', serve, 'sh', sandbox.id, clientKey],
    user: 'root',
    maxRunAfterDisconnectSeconds: disconnectSeconds,
    reconnects: false,
  })
  let text = Buffer.alloc(0)
  let errors = ''
  const output = remote[Symbol.asyncIterator]()
  for (let next = await output.next(); !next.done; next = await output.next()) {
    const { stream, data } = next.value
    if (stream === 'stderr') {
      errors = (errors + Buffer.from(data).toString()).slice(-errorCharactersMax)
      continue
    }
    text = Buffer.concat([text, data])
    const end = text.indexOf('\n')
    if (end === -1 && text.length < firstLineMax) continue
    const hostKey = /^ssh-ed25519 [A-Za-z0-9+/]{40,200}={0,2}(?=\s|$)/.exec(text.subarray(0, end).toString())?.[0]
    if (end === -1 || hostKey === undefined) {
      remote.detach()
      throw new CliError(`${sandbox.id} gave no host key`)
    }
    return { hostKey, remote, first: text.subarray(end + 1), output }
  }
  const status = await remote.exited
  if (status !== missing) throw new CliError(`sshd did not start in ${sandbox.id}: ${errors || `status ${status}`}`)
  throw new CliError(`there is no sshd in ${sandbox.id}`, {
    hint: `install it there, such as with: atoll exec ${sandbox.id} 'apt-get update && apt-get install -y openssh-server'`,
  })
}
