import { defined } from '../lib/defined.ts'
import type { ModelApi } from '../protocol/agent.ts'

export const anthropicBaseUrlDefault = 'https://api.anthropic.com'
export const openaiBaseUrlDefault = 'https://api.openai.com/v1'

/** A model API behind the gateway. */
export interface Upstream {
  /** Without `/v1` for Anthropic's wire, with it for OpenAI's. */
  baseUrl: string
  /** Absent for servers without authentication. */
  apiKey?: string
}

export interface Wire {
  name: ModelApi
  provider: 'anthropic' | 'openai'
  /** Path below the upstream's base URL. */
  upstreamPath: string
  /** An error in the shape of this wire. */
  errorBody(error: WireError): object
  authHeaders(upstream: Upstream): Record<string, string>
}

export interface WireError {
  status: number
  /** `budget_exceeded`, `model_not_allowed`, … */
  code: string
  message: string
}

const openai = {
  provider: 'openai',
  errorBody: ({ status, code, message }: WireError) => ({
    error: {
      message,
      type: openaiErrorTypes[status] ?? (status < 500 ? 'invalid_request_error' : 'server_error'),
      param: null,
      code,
    },
  }),
  authHeaders: ({ apiKey }: Upstream): Record<string, string> =>
    apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
} as const

/** Wires by request path. */
export const wires: Readonly<Record<string, Wire>> = {
  '/anthropic/v1/messages': {
    name: 'anthropic-messages',
    provider: 'anthropic',
    upstreamPath: '/v1/messages',
    // Anthropic's shape has no code; its clients ignore the extra field.
    errorBody: ({ status, code, message }) => ({
      type: 'error',
      error: { type: anthropicErrorTypes[status] ?? 'api_error', message: `${code}: ${message}`, code },
    }),
    authHeaders: ({ apiKey }) => defined({ 'x-api-key': apiKey }),
  },
  '/openai/v1/chat/completions': { ...openai, name: 'openai-completions', upstreamPath: '/chat/completions' },
  '/openai/v1/responses': { ...openai, name: 'openai-responses', upstreamPath: '/responses' },
}

const anthropicErrorTypes: Readonly<Record<number, string>> = {
  400: 'invalid_request_error',
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
}

const openaiErrorTypes: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  402: 'insufficient_quota',
  429: 'rate_limit_error',
}
