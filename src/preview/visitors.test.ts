import assert from 'node:assert/strict'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { test } from 'node:test'
import { sha256 } from '../lib/secret.ts'
import type { PreviewTarget } from '../sandbox/index.ts'
import { Visitors } from './visitors.ts'
import { Visits } from './visits.ts'

const secret = 'a signing secret of the tests'
const visits = new Visits(secret)
const tokenHash = sha256('the token')
const target = { port: 3000, tokenHash, sandbox: {} } as PreviewTarget

/** What a browser gets that opens a frame with a token for a visit. */
async function framed(hostname: string, path = '/?', isTls = false) {
  const visitors = new Visitors({ secret, visits, isTls: () => isTls })
  const { token } = visits.begin({ hostname, tokenHash })
  const headers = { host: `${hostname}:4100`, accept: 'text/html', 'sec-fetch-dest': 'iframe' }
  const request = { method: 'GET', url: `${path}token=${token}`, headers } as unknown as IncomingMessage
  const answer = { status: 0, headers: {} as Record<string, string>, text: '' }
  const response = {
    destroyed: false,
    writeHead(status: number, sent: Record<string, string>) {
      Object.assign(answer, { status, headers: sent })
      return response
    },
    end(text = '') {
      answer.text = text
    },
  }
  assert.ok(await visitors.takeToken(target, request, response as unknown as ServerResponse))
  return { ...answer, token, cookie: answer.headers['set-cookie'] ?? '' }
}

test('visitor: a frame keeps its cookie where the browser takes the host for secure, in frames of that one site alone', async () => {
  const forFrames = /; HttpOnly; SameSite=None; Secure; Partitioned$/
  for (const hostname of ['sb-1-p3000.preview.localhost', 'localhost']) {
    assert.match((await framed(hostname)).cookie, forFrames)
  }
  assert.match((await framed('sb-1-p3000.preview.example.com', '/?', true)).cookie, forFrames)
  for (const hostname of ['sb-1-p3000.preview.example.com', 'sb-1-p3000.notlocalhost']) {
    assert.match((await framed(hostname)).cookie, /; HttpOnly; SameSite=Lax$/)
  }
})

test('visitor: the page that leads a frame on runs nothing that stands in its address, and leads to no other host', async () => {
  const { status, text, token } = await framed('localhost', `/a"><script>alert(1)</script>'?b&`)
  assert.equal(status, 200)
  assert.ok(text.includes('content="0;url=/a&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#39;?b"'), text)
  assert.ok(!text.includes(token))
  assert.match((await framed('localhost', '//evil.example/?')).text, /content="0;url=\/\.\/\/evil\.example\/"/)
})
