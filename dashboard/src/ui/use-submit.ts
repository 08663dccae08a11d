import { useState, type FormEvent } from 'react'

/** What a form does when it is sent: one work at a time, and the reason when that fails. */
export function useSubmit(work: () => Promise<unknown>): {
  submit: (event: FormEvent) => void
  isBusy: boolean
  /** Of the newest work; undefined where it has not failed. */
  error: unknown
} {
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>()
  const run = async () => {
    setBusy(true)
    setError(undefined)
    try {
      await work()
    } catch (reason) {
      setError(reason)
    } finally {
      setBusy(false)
    }
  }
  const submit = (event: FormEvent) => {
    event.preventDefault()
    void run()
  }
  return { submit, isBusy, error }
}
