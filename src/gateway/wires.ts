import type { modelApis } from '../protocol/agent.ts'

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
  name: (typeof modelApis)[number]
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
    error: { message, type: openaiErrorType(status), param: null, code },
  }),
  authHeaders: ({ apiKey }: Upstream): Record<string, string> =>
    apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
} as const

/** By request path. */
export const wires: Readonly<Record<string, Wire>> = {
  '/anthropic/v1/messages': {
    name: 'anthropic-messages',
    provider: 'anthropic',
    upstreamPath: '/v1/messages',
    // Anthropic's shape has no code; its clients ignore the extra field.
    errorBody: ({ status, code, message }) => ({
      type: 'error',
      error: { type: anthropicErrorType(status), message: `${code}: ${message}`, code },
    }),
    authHeaders: ({ apiKey }) => (apiKey === undefined ? {} : { 'x-api-key': apiKey }),
  },
  '/openai/v1/chat/completions': { ...openai, name: 'openai-completions', upstreamPath: '/chat/completions' },
  '/openai/v1/responses': { ...openai, name: 'openai-responses', upstreamPath: '/responses' },
}

/** The demo model serves all wires at one address; OpenAI's base URL includes `/v1`. */
export function demoBaseUrl(wire: Wire, baseUrl: string): string {
  return wire.provider === 'openai' ? `${baseUrl}/v1` : baseUrl
}

function anthropicErrorType(status: number): string {
  switch (status) {
    case 400:
      return 'invalid_request_error'
    case 401:
      return 'authentication_error'
    case 402:
      return 'billing_error'
    case 403:
      return 'permission_error'
    case 404:
      return 'not_found_error'
    case 413:
      return 'request_too_large'
    case 429:
      return 'rate_limit_error'
    default:
      return 'api_error'
  }
}

function openaiErrorType(status: number): string {
  switch (status) {
    case 401:
      return 'authentication_error'
    case 402:
      return 'insufficient_quota'
    case 429:
      return 'rate_limit_error'
    default:
      return status < 500 ? 'invalid_request_error' : 'server_error'
  }
}
