import assert from 'node:assert/strict'
import { type ErrorCode, isServiceError } from '../../errors.ts'

/** Asserts that a call fails with a `ServiceError` of this code, and with these words in its message. */
export async function refuses(call: Promise<unknown>, code: ErrorCode, words = /(?:)/, note?: string): Promise<void> {
  await assert.rejects(call, (error: Error) => isServiceError(error, code) && words.test(error.message), note)
}
