import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'

/** What a sealed text belongs to. It opens for this alone, so that a row that is moved to another owner is worth nothing. */
export interface SealOptions {
  orgId: string
  /** What for, such as `registry ghcr.io`. */
  purpose: string
}

const version = 'v1'
const cipher = 'aes-256-gcm'
const keyBytes = 32
const nonceBytes = 12
const tagBytes = 16

/**
 * Encrypts texts that are stored: `v1.` and base64url of nonce, ciphertext and tag of AES-256-GCM. The key is derived (HKDF, SHA-256) from the
 * secret of the installation for each organisation and purpose, which also are additional data.
 */
export class Sealer {
  readonly #secret: string

  /** `secret` has at least 256 random bits. */
  constructor(secret: string) {
    this.#secret = secret
  }

  seal(text: string, options: SealOptions): string {
    const nonce = randomBytes(nonceBytes)
    const { key, bound } = this.#keyOf(options)
    const encryption = createCipheriv(cipher, key, nonce).setAAD(bound)
    const sealed = [nonce, encryption.update(text, 'utf8'), encryption.final(), encryption.getAuthTag()]
    return `${version}.${Buffer.concat(sealed).toString('base64url')}`
  }

  /** Undefined for what this secret has not sealed for this owner and purpose. */
  open(sealed: string, options: SealOptions): string | undefined {
    const [ofVersion, text = '', ...rest] = sealed.split('.')
    const bytes = Buffer.from(text, 'base64url')
    if (ofVersion !== version || rest.length > 0 || bytes.length < nonceBytes + tagBytes) return undefined
    const { key, bound } = this.#keyOf(options)
    const decryption = createDecipheriv(cipher, key, bytes.subarray(0, nonceBytes), { authTagLength: tagBytes })
    decryption.setAAD(bound).setAuthTag(bytes.subarray(-tagBytes))
    try {
      const opened = decryption.update(bytes.subarray(nonceBytes, -tagBytes))
      return Buffer.concat([opened, decryption.final()]).toString('utf8')
    } catch {
      return undefined
    }
  }

  #keyOf({ orgId, purpose }: SealOptions): { key: Buffer; bound: Buffer } {
    const bound = Buffer.from(JSON.stringify([version, orgId, purpose]))
    return { key: Buffer.from(hkdfSync('sha256', this.#secret, '', bound, keyBytes)), bound }
  }
}
