package registry

import "testing"

func BenchmarkParseAddr(b *testing.B) {
	for _, s := range []string{"10.244.1.5:80", "[2001:db8::5]:80", "web-1.example.internal:80"} {
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ParseAddr(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
