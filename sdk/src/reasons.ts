const ofFiles: Record<string, string> = {
  EACCES: 'permission denied',
  EEXIST: 'exists already',
  EISDIR: 'is a folder',
  ELOOP: 'too many symbolic links',
  EMFILE: 'too many files are open',
  ENAMETOOLONG: 'the name is too long',
  ENOENT: 'there is no such file or folder',
  ENOSPC: 'the disk is full',
  ENOTDIR: 'a part of the path is no folder',
  ENOTEMPTY: 'the folder is not empty',
  EPERM: 'not permitted',
  EROFS: 'the file system is read-only',
}

const ofConnections: Record<string, string> = {
  EAI_AGAIN: 'the name cannot be looked up now',
  ECONNREFUSED: 'nothing listens there',
  ECONNRESET: 'the connection was closed from the other side',
  EHOSTUNREACH: 'there is no way to that machine',
  ENETUNREACH: 'there is no way to that network',
  ENOTFOUND: 'there is no machine of that name',
  EPIPE: 'the connection was closed from the other side',
  ETIMEDOUT: 'no answer came in time',
  UND_ERR_CONNECT_TIMEOUT: 'no answer came in time',
  UND_ERR_SOCKET: 'the connection was closed from the other side',
}

interface SystemError {
  code?: unknown
  syscall?: unknown
  path?: unknown
}

/** Why a file of this machine failed, without the text of its system; the message of any other error. */
export function fileReason(error: unknown): string {
  const { code, path, syscall } = error as SystemError
  const why = typeof code === 'string' && typeof syscall === 'string' ? ofFiles[code] : undefined
  if (why === undefined) return error instanceof Error ? error.message : String(error)
  const shown = path instanceof Uint8Array ? new TextDecoder().decode(path) : path
  return typeof shown === 'string' ? `${shown} on this machine: ${why}` : `a file of this machine: ${why}`
}

/** Why a connection failed. `fetch` of Node says `fetch failed` and has the reason as its cause; of several addresses the first counts. */
export function connectionReason(error: unknown): string {
  const { cause, message, errors } = error as Error & { errors?: readonly unknown[] }
  if (cause instanceof Error) return connectionReason(cause)
  const { code } = error as SystemError
  if (typeof code !== 'string') return errors?.[0] instanceof Error ? connectionReason(errors[0]) : message
  return `${ofConnections[code] ?? (message === '' ? 'it failed' : message)} (${code})`
}
