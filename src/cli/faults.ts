import { ConnectionError } from '../../sdk/src/index.ts'
import { connectionReason, isCertificateFault, isConnectionFault, localReason } from '../../sdk/src/reasons.ts'

/** What failed below the API, told without the texts of the operating system, of OpenSSL and of Node. */
export interface Fault {
  message: string
  code: 'local_error' | 'unreachable'
  hint?: string | undefined
}

const certificateHint = 'NODE_EXTRA_CA_CERTS=FILE names the certificates of an authority of your own'

/** Tells the fault that lies under an error; undefined for one that has its own words. */
export function faultOf(error: unknown): Fault | undefined {
  // Also under the error of a request, which fails with the file that it sends.
  const local = localReason(error)
  if (local !== undefined) return { code: 'local_error', message: local }
  const isTold = error instanceof ConnectionError
  if (!isTold && !isConnectionFault(error)) return undefined
  const message = isTold ? error.message : `the connection failed: ${connectionReason(error)}`
  return { code: 'unreachable', message, hint: isCertificateFault(error) ? certificateHint : undefined }
}
