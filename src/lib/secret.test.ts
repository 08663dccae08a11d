import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { previewToken } from '../sandbox/input.ts'
import { makeFirstApiKey } from '../server/credentials.ts'
import { AccessTokens } from '../session/access-token.ts'
import { looksLikeCredential } from './secret.ts'

test('credential: every form that the server creates is recognised', async () => {
  const store = {
    defaultOrganisation: async () => ({ id: 'org_1', name: 'default' }),
    countApiKeys: async () => 0,
    insertApiKey: async () => {},
  }
  const key = await makeFirstApiKey(store as unknown as Parameters<typeof makeFirstApiKey>[0], () => {})
  const sessions = new AccessTokens(randomBytes(32).toString('hex'))
  const tokens = (['read', 'steer'] as const).map(
    (scope) => sessions.issue('session_0123456789abcdef', scope, 60).token,
  )
  for (const text of [key ?? '', previewToken({ scheme: 'bearer' }, 'authConfig'), ...tokens]) {
    assert.equal(looksLikeCredential(text), true, text)
    assert.equal(looksLikeCredential(`x${text}`), false, text)
  }
})

test('credential: other texts are not recognised', () => {
  for (const text of ['', 'atoll_theme=dark', 'atoll_', 'st.read', 'mine', randomBytes(32).toString('base64url')]) {
    assert.equal(looksLikeCredential(text), false, text)
  }
})
