package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"aead.dev/minisign"
)

// The variables that a release takes its key from: the file of a minisign key or its text, and the password if it has one.
const (
	keyFileEnv     = "MINISIGN_KEY_FILE"
	keyEnv         = "MINISIGN_KEY"
	keyPasswordEnv = "MINISIGN_PASSWORD"
)

// signingKey takes the key from the environment, so that programs that are started later do not have it there. No error quotes any of it.
func signingKey() (key minisign.PrivateKey, err error) {
	text, password, from := []byte(os.Getenv(keyEnv)), os.Getenv(keyPasswordEnv), keyEnv
	for _, name := range []string{keyEnv, keyPasswordEnv} {
		if err := os.Unsetenv(name); err != nil {
			return key, err
		}
	}
	if path := os.Getenv(keyFileEnv); path != "" {
		if len(text) > 0 {
			return key, fmt.Errorf("both %s and %s are set", keyFileEnv, keyEnv)
		}
		if text, err = os.ReadFile(path); err != nil {
			return key, fmt.Errorf("%s: %w", keyFileEnv, err)
		}
		from = keyFileEnv
	}
	switch {
	case len(text) == 0:
		return key, fmt.Errorf("no key to sign with: set %s to the file of a minisign key, or %s to its text, and %s to its password", keyFileEnv, keyEnv, keyPasswordEnv)
	case !minisign.IsEncrypted(text):
		err = key.UnmarshalText(text)
	case password == "":
		return key, fmt.Errorf("the key of %s has a password, and %s is not set", from, keyPasswordEnv)
	default:
		key, err = minisign.DecryptKey(password, text)
	}
	if err != nil {
		return key, fmt.Errorf("%s is no minisign key, or %s is not its password", from, keyPasswordEnv)
	}
	return key, nil
}

// sign writes SHA256SUMS.minisig. The comment that it signs with the checksums has no time, so that a second signature of the same key is the same.
func (r *release) sign(key minisign.PrivateKey) error {
	content, err := os.ReadFile(r.name(sumsName))
	if err != nil {
		return err
	}
	message := minisign.NewReader(bytes.NewReader(content))
	if _, err := new(bytes.Buffer).ReadFrom(message); err != nil {
		return err
	}
	public, _ := key.Public().(minisign.PublicKey) // it always is
	signature := message.SignWithComments(key, fmt.Sprintf("%s %s, commit %s", packageName, r.describe, r.commit), "signature of "+sumsName)
	if !message.Verify(public, signature) {
		return errors.New("the signature does not verify: the key is damaged")
	}
	fmt.Printf("signed; it verifies with: minisign -V -m %s -P %v\n", sumsName, public.String())
	return os.WriteFile(r.name(sumsName+".minisig"), signature, 0o644)
}
