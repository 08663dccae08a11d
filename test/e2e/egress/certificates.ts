import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { promisify } from 'node:util'

const run = promisify(execFile)
const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '30']

export interface Certificate {
  certificate: string
  key: string
}

/** What signs the certificates of the servers outside. Its name is in all of them, so that a probe knows them. */
export class TestAuthority {
  readonly file: string
  readonly #keyFile: string
  readonly #folder: string

  private constructor(folder: string) {
    this.#folder = folder
    this.file = `${folder}/root.pem`
    this.#keyFile = `${folder}/root.key`
  }

  static async make(folder: string, name: string): Promise<TestAuthority> {
    const authority = new TestAuthority(folder)
    const extensions = ['-addext', 'basicConstraints=critical,CA:TRUE', '-addext', 'keyUsage=critical,keyCertSign']
    const files = ['-keyout', authority.#keyFile, '-out', authority.file]
    await run('openssl', ['req', '-x509', ...curve, '-subj', `/CN=${name}`, ...extensions, ...files])
    return authority
  }

  /** One for these names, the first of which is its subject. */
  async issue(label: string, names: readonly string[]): Promise<Certificate> {
    return await this.#make(label, names, ['-CA', this.file, '-CAkey', this.#keyFile])
  }

  /** One that nobody has signed but itself. */
  async selfSigned(label: string, names: readonly string[]): Promise<Certificate> {
    return await this.#make(label, names, [])
  }

  async #make(label: string, names: readonly string[], signed: readonly string[]): Promise<Certificate> {
    const alternatives = names.map((name) => `DNS:${name}`).join(',')
    const extensions = ['-addext', `subjectAltName=${alternatives}`, '-addext', 'basicConstraints=CA:FALSE']
    const [keyFile, file] = [`${this.#folder}/${label}.key`, `${this.#folder}/${label}.pem`]
    const subject = ['-subj', `/CN=${names[0]}`]
    await run('openssl', [
      'req',
      '-x509',
      ...curve,
      ...subject,
      ...extensions,
      ...signed,
      '-keyout',
      keyFile,
      '-out',
      file,
    ])
    return { certificate: await readFile(file, 'utf8'), key: await readFile(keyFile, 'utf8') }
  }
}
