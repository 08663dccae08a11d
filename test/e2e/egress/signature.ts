import { createHash, createHmac } from 'node:crypto'
import { credentials } from './places.ts'
import { pairs, send, type Exchange } from './web.ts'

const objects = new Map<string, Buffer>()

/** Keeps objects for those who sign as AWS's services ask («Signature Version 4», in the `Authorization` field). */
export async function s3(exchange: Exchange): Promise<void> {
  const { request, response, seen, url } = exchange
  const body = await exchange.body()
  const fault = faultOf(exchange, body)
  if (fault !== undefined)
    return send(response, 403, `<Error><Code>SignatureDoesNotMatch</Code><Message>${fault}</Message></Error>`)
  if (request.method === 'PUT') {
    objects.set(url.pathname, body)
    return send(response, 200, '', { etag: `"${seen.bodySha256}"` })
  }
  const found = objects.get(url.pathname)
  send(response, found === undefined ? 404 : 200, found ?? '<Error><Code>NoSuchKey</Code></Error>')
}

function faultOf({ seen, url }: Exchange, body: Buffer): string | undefined {
  const fields = pairs(seen)
  const form =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/([^/]+)\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)$/
  const [, accessKey, date = '', region = '', service = '', names = '', signature] =
    form.exec(fields['authorization'] ?? '') ?? []
  if (accessKey !== credentials.s3.accessKey) return `unknown key ${accessKey}`
  const bodySum = createHash('sha256').update(body).digest('hex')
  const toldSum = fields['x-amz-content-sha256'] ?? bodySum
  if (toldSum !== bodySum && toldSum !== 'UNSIGNED-PAYLOAD') return 'the body has another checksum'
  const signed = names.split(';')
  if (!signed.includes('host')) return 'the host is not signed'
  const valueOf = (name: string) => (name === 'host' ? seen.host : (fields[name] ?? '')).trim().replaceAll(/ +/g, ' ')
  const query = [...url.searchParams].map(([name, value]) => `${coded(name)}=${coded(value)}`).toSorted()
  const lines = signed.map((name) => `${name}:${valueOf(name)}\n`).join('')
  const canonical = [seen.method, url.pathname, query.join('&'), lines, names, toldSum].join('\n')
  const scope = `${date}/${region}/${service}/aws4_request`
  const canonicalSum = createHash('sha256').update(canonical).digest('hex')
  const text = ['AWS4-HMAC-SHA256', fields['x-amz-date'] ?? '', scope, canonicalSum].join('\n')
  const key = [date, region, service, 'aws4_request'].reduce<Buffer>(
    hmac,
    Buffer.from(`AWS4${credentials.s3.secretKey}`),
  )
  return hmac(key, text).toString('hex') === signature ? undefined : 'the signature is another'
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest()
}

function coded(text: string): string {
  return encodeURIComponent(text).replaceAll(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`)
}
